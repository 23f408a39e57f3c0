"""A data parallel step against that of PyTorch's DistributedDataParallel, on the same model."""

import torch
import torch.distributed as dist
from torch import nn

from course_lib.models import batches, tiny_gpt
from course_lib.models.tiny_gpt import token_loss
from course_lib.ranks import collect
from course_lib.techniques.data_parallel import DataParallel
from tests.bench.row import Measurement, Row, paired

_SAMPLES = 32  # a rank
_PAIRS = 61


def _on_each_rank() -> tuple[float, ...]:
    from torch.nn.parallel import DistributedDataParallel

    rank = dist.get_rank()
    model = {"layers": 4, "hidden": 128}
    ours = DataParallel(tiny_gpt(**model, seed=rank))
    theirs = DistributedDataParallel(tiny_gpt(**model, seed=rank))
    tokens, targets = next(batches(1, _SAMPLES * dist.get_world_size()))
    mine = slice(rank * _SAMPLES, (rank + 1) * _SAMPLES)

    def step_of(model: nn.Module):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            loss = token_loss(model(tokens[mine]), targets[mine])
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    our_step, their_step = step_of(ours), step_of(theirs)
    for _ in range(3):  # a second step shows whether the first one's gradients were averaged
        assert (our_step() - their_step()).abs() < 1e-5, "the two do not compute the same"
    return paired(our_step, their_step, pairs=_PAIRS)


def _measure() -> list[Measurement]:
    return [
        Measurement(
            f"tiny GPT, {ranks} ranks, {_SAMPLES} samples each",
            # As all ranks wait for each other in every step, one of them can hold the watch.
            collect(_on_each_rank, ranks, observe=False, timeout=300)[0],
            limit=1.0,
        )
        for ranks in (2, 4)
    ]


ROWS = [Row("data_parallel", "a data parallel step against DistributedDataParallel", _measure)]
