"""A data parallel step against that of PyTorch's DistributedDataParallel, on the same model."""

import itertools
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from course_lib.models import batches, tiny_gpt
from course_lib.models.tiny_gpt import token_loss
from course_lib.ranks import collect
from course_lib.techniques.data_parallel import DataParallel
from tests.bench.measurement import Measurement, Row, paired

_SAMPLES = 32  # per rank
_STARTS, _PAIRS = 6, 10


_MODEL = {"layers": 4, "hidden": 128}


def _steps(model: nn.Module, after_backward: Callable[[], object] = lambda: None) -> Callable:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tokens, targets = next(batches(1, _SAMPLES * dist.get_world_size()))
    mine = slice(dist.get_rank() * _SAMPLES, (dist.get_rank() + 1) * _SAMPLES)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = token_loss(model(tokens[mine]), targets[mine])
        loss.backward()
        after_backward()
        optimizer.step()
        return loss.detach()

    return step


def _theirs() -> Callable:
    from torch.nn.parallel import DistributedDataParallel

    return _steps(DistributedDataParallel(tiny_gpt(**_MODEL, seed=dist.get_rank())))


def _ours_to_theirs() -> tuple[float, ...]:
    our_step, their_step = _steps(DataParallel(tiny_gpt(**_MODEL, seed=dist.get_rank()))), _theirs()
    for _ in range(3):  # a second step shows whether the first one's gradients were averaged
        assert (our_step() - their_step()).abs() < 1e-5, "the two do not compute the same"
    return paired(our_step, their_step, pairs=_PAIRS)


def _bytes_alone_to_theirs() -> tuple[float, ...]:
    """As many bytes as the gradients have, moved after backward; no gradient is copied."""
    model = tiny_gpt(**_MODEL)
    flat = torch.zeros(sum(parameter.numel() for parameter in model.parameters()))
    return paired(_steps(model, lambda: dist.all_reduce(flat)), _theirs(), pairs=_PAIRS)


def _measure() -> list[Measurement]:
    def ratios(what: Callable, ranks: int) -> tuple[float, ...]:
        # As all ranks wait for each other in every step, one of them can hold the watch. Ranks are
        # started anew some times: which core the system puts whom on makes a difference.
        starts = [collect(what, ranks, observe=False, timeout=300)[0] for _ in range(_STARTS)]
        return tuple(itertools.chain(*starts))

    return [
        Measurement(
            f"tiny GPT, {ranks} ranks, {_SAMPLES} samples each",
            ratios(_ours_to_theirs, ranks),
            limit=1.0,
        ).or_floor(
            "only a step and then the bytes, one after the other",
            lambda ranks=ranks: ratios(_bytes_alone_to_theirs, ranks),
        )
        for ranks in (2, 4)
    ]


ROWS = [Row("data_parallel", "a data parallel step against DistributedDataParallel", _measure)]
