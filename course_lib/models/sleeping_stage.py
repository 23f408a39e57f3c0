"""A stage of a pipeline that sleeps instead of computing, and writes down when.

Processes that compute share the cores of a machine; any number of them can sleep at the same time.
So the times of such stages are those of a schedule, on a laptop as on a cluster.
"""

import time
from typing import Any, NamedTuple

import torch
from torch import nn


class Slept(NamedTuple):
    """A forward ("F") or a backward ("B"), with its begin and end by `time.monotonic()`."""

    kind: str
    start: float
    end: float


class SleepingStage(nn.Module):
    """Multiplies by a parameter, and sleeps `forward` and `backward` seconds for each microbatch.

    log: what it has done, in order.
    """

    def __init__(self, forward: float, backward: float) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.seconds = {"F": forward, "B": backward}
        self.log: list[Slept] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x, of any shape, times the parameter."""
        return _Sleep.apply(x * self.scale, self)

    def sleep(self, kind: str) -> None:
        """The time that a forward or a backward takes."""
        start = time.monotonic()
        time.sleep(self.seconds[kind])
        self.log.append(Slept(kind, start, time.monotonic()))


class _Sleep(torch.autograd.Function):
    """Passes a tensor on, forward and backward, after the stage has slept."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, stage: SleepingStage) -> torch.Tensor:
        ctx.stage = stage
        stage.sleep("F")
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.stage.sleep("B")
        return gradients[0].clone(), None
