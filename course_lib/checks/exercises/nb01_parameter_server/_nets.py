"""The networks that are trained in this notebook's checks, and the same training in one process."""

import random
from typing import Any

import torch
from torch import nn

WIDTH = 4
FROZEN, TIED, UNUSED = "frozen", "tied", "unused"


class Net(nn.Module):
    """(B, 4) -> (B, 4), in float64, with what breaks naive answers, as `options` asks."""

    def __init__(self, options: list[str]) -> None:
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        self.second = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        self.last = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)
        if TIED in options:
            self.second.weight = self.first.weight
        if FROZEN in options:
            self.first.bias.requires_grad_(False)
        if UNUSED in options:
            self.spare = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.second(torch.tanh(self.first(x)))))


def loss_of(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    # Another one when its arguments change places.
    return nn.functional.mse_loss(1.5 * output, targets)


def draw(rng: random.Random, options: list[str], samples: list[int], steps: int) -> dict[str, Any]:
    """Weights of every rank, all different, and for each step the samples of every worker."""
    generator = torch.Generator().manual_seed(rng.getrandbits(63))

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    states = []
    for _ in range(len(samples) + 1):
        state = {name: numbers(*t.shape) / 2 for name, t in Net(options).state_dict().items()}
        if TIED in options:
            state["second.weight"] = state["first.weight"]
        states.append(state)
    batches = [[(numbers(n, WIDTH), numbers(n, WIDTH)) for n in samples] for _ in range(steps)]
    return {"options": options, "states": states, "batches": batches}


def net_of(data: dict[str, Any], rank: int) -> Net:
    """The network that this rank starts with."""
    net = Net(data["options"])
    net.load_state_dict(data["states"][rank])
    return net


def one_process(
    data: dict[str, Any],
    lr: float,
    mean_of_means: bool = False,
    keeps_gradients: bool = False,
    own_start: bool = False,
) -> dict[str, torch.Tensor]:
    """Parameters after all steps with whole batches, from the network of rank 0.

    The options are mistakes: the mean of the workers' means, gradients that pile up from step to
    step, and first gradients that workers take at the values that they start with themselves.
    """
    net = net_of(data, 0)
    for step, parts in enumerate(data["batches"]):
        if not keeps_gradients:
            net.zero_grad()
        if own_start and step == 0:
            _add_gradients_of_own_starts(net, data, parts)
        elif mean_of_means:
            torch.stack([loss_of(net(x), y) for x, y in parts]).mean().backward()
        else:
            x, y = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
            loss_of(net(x), y).backward()
        with torch.no_grad():
            for parameter in net.parameters():
                if parameter.grad is not None:
                    parameter.sub_(lr * parameter.grad)
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def _add_gradients_of_own_starts(
    net: Net, data: dict[str, Any], parts: list[tuple[torch.Tensor, torch.Tensor]]
) -> None:
    rows = sum(len(x) for x, _ in parts)
    for worker, (x, y) in enumerate(parts, 1):
        own = net_of(data, worker)
        loss_of(own(x), y).mul(len(x) / rows).backward()
        for parameter, its in zip(net.parameters(), own.parameters(), strict=True):
            if its.grad is not None:
                before = 0 if parameter.grad is None else parameter.grad
                parameter.grad = before + its.grad
