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
    return nn.functional.mse_loss(output, targets)


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
    data: dict[str, Any], lr: float, mean_of_means: bool = False
) -> dict[str, torch.Tensor]:
    """Parameters after all steps with whole batches, from the network of rank 0."""
    net = net_of(data, 0)
    for parts in data["batches"]:
        if mean_of_means:
            loss = torch.stack([loss_of(net(x), y) for x, y in parts]).mean()
        else:
            x, y = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
            loss = loss_of(net(x), y)
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for parameter in net.parameters():
                if parameter.grad is not None:
                    parameter.sub_(lr * parameter.grad)
    return {name: p.detach().clone() for name, p in net.named_parameters()}
