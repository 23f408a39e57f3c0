"""Small models with what breaks naive implementations: every technique is tested on each.

All map (B, 6) to (B, 3), in float64, from the seed they are given.
"""

from collections.abc import Callable

import torch
from torch import nn

INPUTS, OUTPUTS = 6, 3


class Frozen(nn.Module):
    """A bias that is not trained: its gradient stays None, and it must not move."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(INPUTS, 7)
        self.outer = nn.Linear(7, OUTPUTS)
        self.inner.bias.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(torch.tanh(self.inner(x)))


class Unused(nn.Module):
    """A parameter that takes no part, so that it never gets a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(INPUTS, OUTPUTS)
        self.unused = nn.Parameter(torch.ones(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.used(x)


class Tied(nn.Module):
    """One matrix used twice: its gradient is a sum, and there is one optimizer state for it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(INPUTS, INPUTS)
        self.second = nn.Linear(INPUTS, INPUTS)
        self.second.weight = self.first.weight
        self.last = nn.Linear(INPUTS, OUTPUTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


class Odd(nn.Module):
    """Sizes that no world size divides, one of them a single element, one a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(INPUTS, 1)
        self.gain = nn.Parameter(torch.tensor(0.5))
        self.outer = nn.Linear(1, OUTPUTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.gain * torch.tanh(self.inner(x)))


class Transposed(nn.Module):
    """A weight that lies in memory column by column, as one does that was loaded transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(INPUTS, 4)
        self.inner.weight = nn.Parameter(torch.randn(INPUTS, 4).t())
        self.outer = nn.Linear(4, OUTPUTS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(torch.tanh(self.inner(x)))


def _make(kind: type[nn.Module]) -> Callable[[int], nn.Module]:
    def make(seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return kind().double()

    return make


NASTY_MODELS: dict[str, Callable[[int], nn.Module]] = {
    kind.__name__.lower(): _make(kind) for kind in (Frozen, Unused, Tied, Odd, Transposed)
}
