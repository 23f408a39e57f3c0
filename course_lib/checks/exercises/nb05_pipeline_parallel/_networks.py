"""The networks that go through a pipeline in the checks, and their gradients in one process."""

import random
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from course_lib.checks import compare, reference
from course_lib.checks.exercise import Case, Finding

WIDTH = 4
_SLACK = 1e-4  # of the largest gradient of a parameter: float32 through a few layers
FROZEN = "frozen"


class Watched(nn.Module):
    """A stage, (B, 4) -> (B, 4), that notes in `passes` whenever it runs forward or backward."""

    def __init__(self, frozen: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.ones(WIDTH), requires_grad=not frozen)
        self.passes: list[str] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.passes.append("F")
        h = torch.tanh(self.linear(x)) * self.scale
        if h.requires_grad:
            h.register_hook(lambda _: self.passes.append("B"))
        return h


def loss_of(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(output, targets)


def network_data(rng: random.Random, stages: int, samples: int) -> dict[str, Any]:
    """Weights of every stage, inputs and targets."""
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    template = Watched().state_dict()
    return {
        "states": [
            {name: torch.randn(t.shape, generator=generator) for name, t in template.items()}
            for _ in range(stages)
        ],
        "x": torch.randn(samples, WIDTH, generator=generator),
        "y": torch.randn(samples, WIDTH, generator=generator),
    }


def stage_module(case: Case, stage: int) -> Watched:
    module = Watched(frozen=stage in case.data.get(FROZEN, ()))
    module.load_state_dict(case.data["states"][stage])
    return module


# ---------------------------------------------------------------------------------------------


def one_process(case: Case) -> tuple[float, list[dict[str, torch.Tensor | None]]]:
    """Loss and gradients by stage for the whole batch, in float64."""
    stages = [stage_module(case, s).double() for s in range(len(case.data["states"]))]
    h = case.data["x"].double()
    for stage in stages:
        h = stage(h)
    loss = loss_of(h, case.data["y"].double())
    loss.backward()
    return loss.item(), [{n: p.grad for n, p in stage.named_parameters()} for stage in stages]


def wrong_gradient(
    got: torch.Tensor | None, exact: torch.Tensor | None, rank: int, name: str, parts: int = 1
) -> Finding | None:
    """One gradient of rank's stage against that of one process. parts: microbatches of a batch."""
    title = f"gradient of {name!r} on rank {rank}"
    if exact is None:
        likely = f"{title}: this parameter is frozen, and its .grad is to stay None"
        return None if got is None else Finding(likely, rank)
    if got is None:
        likely = (
            f"{title}: there is none. Does backward run on this rank, and does it begin from the "
            "gradient that came?"
        )
        return Finding(likely, rank, got="None")
    tolerance = torch.full_like(exact, float(exact.abs().max()) * _SLACK)
    finding = compare.mismatch(got, reference.Reference(exact, tolerance, torch.float32), rank)
    if finding is None:
        return None
    if parts > 1 and ((got.double() - parts * exact).abs() <= parts * tolerance).all():
        return replace(
            finding,
            likely=f"{title}: exactly m = {parts} times the reference. The loss of a microbatch is "
            "a mean over few samples: divide it by m before its backward",
        )
    if not got.any():
        likely = f"{title}: all zeros. Is what arrived here the gradient of what was sent?"
        return replace(finding, likely=likely)
    return replace(finding, likely=f"{title}: {finding.likely}")
