"""Gradients where some parameters are on all ranks and some on a few: averaged over whom?

average_by_owner(dense, experts, replicas)
    dense: parameters that every rank has. experts: parameters of this rank's experts, which only
    the ranks of the group `replicas` have. Every rank's loss is a mean over its own tokens, and the
    loss of the step is the mean over all ranks. Afterwards every .grad is that of the step's loss.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from course_lib.checks import compare_tensors
from course_lib.checks.call_answer import plain
from course_lib.checks.case_inputs import normal
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.process_groups import group_of
from course_lib.checks.rank_inputs import by_rank
from course_lib.text import counted

_DENSE = [(2, 3), (4,)]
_EXPERTS = [(3, 2), (1,)]


def _cases(rng: random.Random) -> list[Case]:
    return [_case(rng, n, size) for n, size in ((4, 2), (2, 2), (2, 1))]


def _case(rng: random.Random, n: int, size: int) -> Case:
    """`size` ranks hold all experts between them; rank r has the same as ranks r + size, ..."""
    dense = [normal(rng, *_DENSE) for _ in range(n)]
    experts: list[list[torch.Tensor | None]] = [[*normal(rng, *_EXPERTS)] for _ in range(n)]
    if size < n:
        experts[-1][0] = None  # an expert that got no token there
    label = f"{counted(n, 'rank')}, experts over {size} of them"
    clue = Clue(
        "an expert that got no token has no gradient on that rank, and the other replicas wait for "
        "its part: it is zero",
        "NoneType",
    )
    return Case(n, label, {"dense": dense, "experts": experts, "size": size}, clue)


def _replicas(case: Case, rank: int) -> list[int]:
    size = case.data["size"]
    return list(range(rank % size, case.world_size, size))


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank = dist.get_rank()
    dense = _parameters(case.data["dense"][rank], _DENSE)
    experts = _parameters(case.data["experts"][rank], _EXPERTS)
    answer(dense, experts, group_of(_replicas(case, rank)))
    return {
        "dense": [plain(p.grad) for p in dense],
        "experts": [plain(p.grad) for p in experts],
    }


def _parameters(
    gradients: list[torch.Tensor | None], shapes: list[tuple[int, ...]]
) -> list[nn.Parameter]:
    parameters = []
    for gradient, shape in zip(gradients, shapes, strict=True):
        parameters.append(nn.Parameter(torch.ones(shape, dtype=torch.float64)))
        parameters[-1].grad = None if gradient is None else gradient.clone()
    return parameters


def _judge(case: Case, observation: Observation) -> Finding | None:
    data, n = case.data, case.world_size
    for rank, seen in enumerate(observation.values):
        for i, got in enumerate(seen["dense"]):
            parts = [gradients[i] for gradients in data["dense"]]
            total = torch.stack(parts).sum(0)
            looks = {
                "the sum over all ranks: the loss of the step is their mean": total,
                "this rank's own gradient, which nobody averaged": parts[rank],
                "the average over the replicas of the experts: dense parameters are on all ranks": (
                    torch.stack([parts[r] for r in _replicas(case, rank)]).mean(0)
                ),
                "the sum over the replicas of the experts, divided by all ranks: dense parameters "
                "are on all ranks": torch.stack([parts[r] for r in _replicas(case, rank)]).sum(0)
                / n,
            }
            if finding := compare_tensors.computed(got, total / n, rank, looks):
                return compare_tensors.titled(f"dense parameter {i}", finding)
    for rank, seen in enumerate(observation.values):
        for i, got in enumerate(seen["experts"]):
            if finding := _wrong_expert(case, got, i, rank):
                return finding
    return _bytes(case, observation)


def _wrong_expert(case: Case, got: Any, i: int, rank: int) -> Finding | None:
    n, replicas = case.world_size, _replicas(case, rank)
    all_parts = [
        torch.zeros(_EXPERTS[i], dtype=torch.float64) if part is None else part
        for part in (gradients[i] for gradients in case.data["experts"])
    ]
    parts = [all_parts[r] for r in replicas]
    total = torch.stack(parts).sum(0)
    if got is None and total.any():
        return Finding(
            f"expert parameter {i}: this rank had no gradient, and still has none. Its replicas "
            "have one, and all must take the same step: begin with zeros",
            rank,
            got="None",
        )
    looks = _own(all_parts[rank], n) | (
        {f"the sum over the ranks: divide by {n}": total}
        if len(replicas) == n
        else _of_experts(case, all_parts, replicas)
    )
    return compare_tensors.titled(
        f"expert parameter {i}", compare_tensors.computed(got, total / n, rank, looks)
    )


def _own(gradient: torch.Tensor, n: int) -> dict[str, torch.Tensor]:
    return {
        "this rank's own gradient: its replicas have seen other tokens": gradient,
        "this rank's own gradient, divided by all ranks: its replicas have seen other tokens": (
            gradient / n
        ),
    }


def _of_experts(
    case: Case, all_parts: list[torch.Tensor], replicas: list[int]
) -> dict[str, torch.Tensor]:
    """What comes of gradients of all ranks, where these have different experts."""
    n, size = case.world_size, case.data["size"]
    total = torch.stack([all_parts[r] for r in replicas]).sum(0)
    everything = torch.stack(all_parts).sum(0)
    return {
        f"exactly {size} times too much: divided by {len(replicas)}. But it holds what the tokens "
        f"of {size} ranks made of it, and each rank's loss counts 1/{n}: divide by {n}, as "
        "everywhere": total / len(replicas),
        "a mixture of different experts: the average goes over the ranks that have the same ones, "
        "the group `replicas`": everything / n,
        "the sum of different experts: these are added up over the group `replicas` only": (
            everything
        ),
        f"the sum over the replicas: divide by {n}, since each rank's loss counts 1/{n}": total,
    }


def _bytes(case: Case, observation: Observation) -> Finding | None:
    """Dense gradients once over all ranks, those of experts once over their replicas."""
    n = case.world_size
    dense, experts = (8 * sum(torch.Size(s).numel() for s in sizes) for sizes in (_DENSE, _EXPERTS))
    for rank in range(n):
        wanted: dict[tuple[int, ...], int] = {}
        for ranks, nbytes in ((tuple(range(n)), dense), (tuple(_replicas(case, rank)), experts)):
            if len(ranks) > 1:
                wanted[ranks] = wanted.get(ranks, 0) + nbytes
        found = dict.fromkeys(wanted, 0)
        for event in observation.trace.of(rank):
            if len(event.ranks) > 1 and event.op == "all_reduce":
                found[event.ranks] = found.get(event.ranks, 0) + event.nbytes
        if found != wanted:
            return Finding(
                "the gradients are right, but not what is sent: dense ones once over all ranks, "
                "those of experts once over their replicas",
                rank,
                expected=_told(wanted),
                got=_told(found),
            )
    return None


def _told(nbytes: dict[tuple[int, ...], int]) -> str:
    parts = [f"{size} bytes over ranks {list(ranks)}" for ranks, size in nbytes.items()]
    return ", ".join(parts) or "nothing"


EXERCISE = Exercise(
    module=__name__,
    signature="(dense, experts, replicas)",
    cases=_cases,
    on_rank=_on_rank,
    own={"dense": by_rank, "experts": by_rank},
    groups=lambda case: [_replicas(case, each) for each in range(case.data["size"])],
    judge=_judge,
    hints=(
        """
        Write down the loss of the step as a mean over the ranks' losses. Which ranks' losses depend
        on a dense parameter? Which on one copy of an expert, and what is in that copy's .grad
        already when backward has ended?
        """,
        """
        The copy of an expert has heard from all ranks that sent it tokens: the sum over its own
        expert group is there. What is missing are the other copies. Sum over `replicas`; then
        divide by what the loss of one rank is divided by. An expert without tokens has None.
        """,
        """
        for p in dense: all_reduce(p.grad), then p.grad /= n. for p in experts: where p.grad is None
        begin with torch.zeros_like(p); all_reduce(p.grad, group=replicas), then p.grad /= n, with
        the same n, the world size.
        """,
    ),
    passed="every gradient is that of the whole batch, and no expert is mixed with another",
    contract=Contract(
        takes="an expert may have no .grad on some ranks",
        gives="afterwards .grad of an expert is a tensor where any replica has one; it may be "
        "another tensor than before",
        allowed=frozenset({"all_reduce"}),
        sends="dense gradients travel once over all ranks, those of experts once over `replicas`",
    ),
    points=2,
)
