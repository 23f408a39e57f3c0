"""A small network with what real models have, and its training in one process.

Everything is float64. Adam divides a gradient by its own size, so that rounding in float32 could
turn the sign of an update.
"""

import random
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

BATCH = 3  # samples of each rank in each step
STEPS = 3  # the second and the third show what the first left behind
LEARNING_RATE = 0.05
MOMENTUM, ADAM = "SGD with momentum", "Adam"
FROZEN, TIED, TINY = "frozen", "tied", "tiny"  # options of `Net`


class Net(nn.Module):
    """(B, 4) -> (B, 3). Its 93 elements divide by 3, and by none of 2, 4 and 5; tiny: just 3.

    Two of its parameters have the same shape.
    """

    def __init__(self, options: list[str]):
        super().__init__()
        self.options = options
        if TINY in options:
            self.last = nn.Linear(4, 3, bias=False)
            self.gain = nn.Parameter(torch.ones(3))
            self.last.weight.requires_grad_(False)
            self.double()
            return
        self.first = nn.Linear(4, 6)
        self.middle = nn.Linear(6, 6)
        self.last = nn.Linear(6, 3)
        if TIED in options:
            self.again = nn.Linear(6, 6, bias=False)
            self.again.weight = self.middle.weight
        if FROZEN in options:
            self.first.bias.requires_grad_(False)
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if TINY in self.options:
            return self.last(x) * self.gain
        h = torch.tanh(self.middle(torch.tanh(self.first(x))))  # (B, 6)
        if TIED in self.options:
            h = torch.tanh(self.again(h))
        return self.last(h)


def trainable(model: nn.Module) -> list[nn.Parameter]:
    """Each parameter that learns, once."""
    return [p for p in model.parameters() if p.requires_grad]


def make_optimizer(kind: str, parameters: Any) -> torch.optim.Optimizer:
    if kind == ADAM:
        return torch.optim.Adam(parameters, lr=LEARNING_RATE)
    return torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=0.9)


def training_data(
    rng: random.Random, world_size: int, options: list[str], equal_start: bool
) -> dict[str, Any]:
    """States of the ranks' models, and x and y by (step, rank, sample)."""
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    template = Net(options).state_dict()
    states = []
    for _ in range(world_size):
        state = {
            name: torch.randn(t.shape, generator=generator, dtype=torch.float64) / 2
            for name, t in template.items()
        }
        if TIED in options:
            state["again.weight"] = state["middle.weight"]
        states.append(state)
    if equal_start:
        states = states[:1] * world_size
    shape = STEPS, world_size, BATCH
    return {
        "options": options,
        "states": states,
        "x": torch.randn(*shape, 4, generator=generator, dtype=torch.float64),
        "y": torch.randn(*shape, 3, generator=generator, dtype=torch.float64),
    }


# ---------------------------------------------------------------------------------------------


class OneProcess:
    """Training on one device, with all ranks' samples in one batch.

    start: the parameters before it. after[step]: the parameters after each step, by name.
    squares[step]: the sum of squares of all gradients.
    """

    def __init__(self, data: dict[str, Any], kind: str):
        model = Net(data["options"])
        model.load_state_dict(data["states"][0])
        optimizer = make_optimizer(kind, trainable(model))
        self.start = self._copy(model)
        self.after: list[dict[str, torch.Tensor]] = []
        self.squares: list[float] = []
        for xs, ys in zip(data["x"], data["y"], strict=True):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(xs.flatten(0, 1)), ys.flatten(0, 1)).backward()
            self.squares.append(sum_of_squares(p.grad for p in trainable(model)))
            optimizer.step()
            self.after.append(self._copy(model))

    @staticmethod
    def _copy(model: nn.Module) -> dict[str, torch.Tensor]:
        return {name: p.detach().clone() for name, p in model.named_parameters()}


def sum_of_squares(tensors: Iterable[torch.Tensor | None]) -> float:
    return sum(float((t.double() ** 2).sum()) for t in tensors if t is not None)


def held_bytes(tensors: Iterable[torch.Tensor | None]) -> int:
    """Bytes of the memory behind `tensors`, each piece once."""
    storages = [t.untyped_storage() for t in tensors if t is not None]
    return sum({s.data_ptr(): s.nbytes() for s in storages}.values())
