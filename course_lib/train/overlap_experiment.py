"""A step of eight equal layers, watched: what lesson 03 replays on clusters of many sizes.

Each function runs on a rank. What comes back says in which order passes began; the all-reduces
between them are recorded anyway.
"""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from course_lib.techniques.data_parallel import DistributedOptimizer

LAYERS, WIDTH = 8, 512
LAYER_BYTES = 4 * WIDTH**2  # of a layer's gradient

# prepare(model, bucket_bytes) -> synchronize, to be called after backward
Prepare = Callable[[nn.Module, int], Callable[[], object]]


def one_step(prepare: Prepare, bucket_bytes: int) -> list[tuple[str, float]]:
    """A step by `prepare`; returns (pass, time at which it began): "F 0", "F 1", ..., "B 0"."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
    log = _note_passes(model)
    synchronize = prepare(model, bucket_bytes)
    model(torch.ones(2, WIDTH)).sum().backward()
    synchronize()
    return log


def all_after_backward(model: nn.Module, _bucket_bytes: int) -> Callable[[], None]:
    """Send everything at once, when backward has ended."""

    def synchronize() -> None:
        dist.all_reduce(
            torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        )

    return synchronize


def buckets_of_the_course(model: nn.Module, bucket_bytes: int) -> Callable[[], object]:
    """Buckets by the course's optimizer, which begin to travel in backward."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return DistributedOptimizer(optimizer, model, buffer_bytes=bucket_bytes).step


# ------------------------------------------------------------------------------------------------


def _note_passes(model: nn.Sequential) -> list[tuple[str, float]]:
    """A list that fills with (pass, time at which it begins)."""
    log: list[tuple[str, float]] = []

    def note(name: str) -> None:
        log.append((name, time.monotonic()))

    def after_forward(output: torch.Tensor, i: int) -> None:
        output.register_hook(lambda _: note(f"B {i}"))  # called when backward comes to layer i

    for i, layer in enumerate(model):
        layer.register_forward_pre_hook(lambda *_, i=i: note(f"F {i}"))
        layer.register_forward_hook(lambda _, __, output, i=i: after_forward(output, i))
    return log
