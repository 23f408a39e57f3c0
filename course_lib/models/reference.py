"""Training on one device: what every technique of the course has to equal, step by step."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


@dataclass
class History:
    """losses[i] of step i; parameters[i] after it, by name, as copies."""

    losses: list[float] = field(default_factory=list)
    parameters: list[dict[str, torch.Tensor]] = field(default_factory=list)

    def record(self, model: nn.Module, loss: torch.Tensor) -> None:
        self.losses.append(loss.item())
        self.parameters.append({k: p.detach().clone() for k, p in model.named_parameters()})


def _own_loss(model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return model.loss(inputs, targets)


def train(
    model: nn.Module,
    batches: Iterable[tuple[torch.Tensor, torch.Tensor]],
    make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
    loss_of: Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor] = _own_loss,
) -> History:
    """Train `model` in place on whole batches.

    loss_of(model, inputs, targets) gives the mean loss of a batch; without it, `model.loss`.
    """
    history = History()
    optimizer = make_optimizer(p for p in model.parameters() if p.requires_grad)
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = loss_of(model, inputs, targets)
        loss.backward()
        optimizer.step()
        history.record(model, loss)
    return history
