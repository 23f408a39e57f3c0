"""A task for the nasty models, in float64: random numbers to random numbers."""

import torch
from torch import nn

from course_lib.models.edge_cases import INPUTS, OUTPUTS


def data(samples: int, steps: int = 10) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """A batch for each step, (samples, INPUTS) and (samples, OUTPUTS)."""
    generator = torch.Generator().manual_seed(5)

    def numbers(width: int) -> torch.Tensor:
        return torch.randn(samples, width, generator=generator, dtype=torch.float64)

    return [(numbers(INPUTS), numbers(OUTPUTS)) for _ in range(steps)]


def mse(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nn.functional.mse_loss(model(x), y)


def sgd(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=0.01)
