"""A layer of experts against its experts' matrices and its messages, each alone."""

import functools
import itertools

import torch
import torch.distributed as dist

from course_lib.ranks import collect
from course_lib.techniques.expert_parallel import Experts, MixtureOfExperts, plan_dispatch
from tests.bench.measurement import Measurement, Row, paired

_HIDDEN, _EXPERTS, _TOP_K, _TOKENS = 512, 8, 2, 256  # tokens per rank
_STARTS, _PAIRS = 4, 8


def _on_each_rank(shared: int) -> tuple[float, ...]:
    torch.manual_seed(0)
    layer = MixtureOfExperts(_HIDDEN, _EXPERTS, top_k=_TOP_K, shared=shared)
    torch.manual_seed(dist.get_rank())
    x = torch.randn(_TOKENS, _HIDDEN, requires_grad=True)

    def ours() -> None:
        layer.zero_grad()
        layer(x).square().mean().backward()

    ours()
    plan = plan_dispatch(layer.routing.experts, _EXPERTS)
    experts = Experts(_EXPERTS, _HIDDEN)
    rows = torch.randn(sum(plan.receive), _HIDDEN, requires_grad=True)
    sent, arrived = torch.randn(sum(plan.send), _HIDDEN), torch.empty_like(rows.detach())

    def alone() -> None:
        experts.zero_grad()
        experts(rows, plan.per_expert).square().mean().backward()
        if layer.shared is not None:
            layer.shared.zero_grad()
            inner = torch.nn.functional.gelu(layer.shared.up(x))
            layer.shared.down(inner).square().mean().backward()
        for _ in range(2):  # forward and backward; dispatch one way, combine the other
            dist.all_to_all_single(arrived, sent, list(plan.receive), list(plan.send))
            dist.all_to_all_single(sent, arrived, list(plan.send), list(plan.receive))

    return paired(ours, alone, pairs=_PAIRS)


def _measure() -> list[Measurement]:
    def ratios(ranks: int, shared: int) -> tuple[float, ...]:
        of_rank = functools.partial(_on_each_rank, shared)
        starts = [collect(of_rank, ranks, observe=False, timeout=300)[0] for _ in range(_STARTS)]
        return tuple(itertools.chain(*starts))

    return [
        Measurement(
            f"{_EXPERTS} experts{also}, {ranks} ranks",
            ratios(ranks, shared),
            limit=1.15,
        )
        for ranks in (2, 4)
        for shared, also in ((0, ""), (2 * _HIDDEN, " and a shared one"))
    ]


ROWS = [Row("experts", "a layer of experts against its matrices and messages alone", _measure)]
