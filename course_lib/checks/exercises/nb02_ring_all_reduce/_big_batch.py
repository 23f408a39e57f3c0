"""A small network with what real models have, and its gradients in one process."""

from dataclasses import replace

import torch
from torch import nn

from course_lib.checks import reference, tolerance
from course_lib.checks.exercise import Case

BATCH = 4  # samples per rank
STEPS = 2  # the second shows what the first left behind
LEARNING_RATE = 0.1
_ROUNDING = 1e-4  # of a parameter's largest gradient of all ranks: float32 through three layers

# Options of `Net`; a buffer brings an integer one along, and one that is not saved
FROZEN, UNUSED, TIED, BUFFER = "frozen", "unused", "tied", "buffer"


class Net(nn.Module):
    """(B, 4) -> (B, 2), with what real models have: `options` out of the four above."""

    def __init__(self, options: list[str]):
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.middle = nn.Linear(6, 6, bias=False)
        self.last = nn.Linear(6, 2)
        self.options = options
        if FROZEN in options:
            self.shift = nn.Parameter(torch.zeros(6), requires_grad=False)
        if UNUSED in options:
            self.spare = nn.Linear(6, 6)
        if TIED in options:
            self.again = nn.Linear(6, 6, bias=False)
            self.again.weight = self.middle.weight
        if BUFFER in options:
            self.scale: torch.Tensor
            self.register_buffer("scale", torch.ones(6))
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))
            self.register_buffer("noise", torch.zeros(3), persistent=False)  # not in state_dict()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.first(x))  # (B, 6)
        h = torch.tanh(self.middle(h))
        if FROZEN in self.options:
            h = h + self.shift
        if TIED in self.options:
            h = torch.tanh(self.again(h))
        if BUFFER in self.options:
            h = h * self.scale
        return self.last(h)  # (B, 2)


# ---------------------------------------------------------------------------------------------


def tensors_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """All that ranks have to share: parameters and buffers, also those that are not saved."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def drawn_state(options: list[str], generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Values for all of `tensors_of`; whole numbers are larger than float32 can tell apart."""
    state = {}
    for name, tensor in tensors_of(Net(options)).items():
        if tensor.is_floating_point():
            state[name] = torch.randn(tensor.shape, generator=generator) / 2
        else:
            state[name] = torch.randint(2**53, 2**60, tensor.shape, generator=generator)
    return state


def fill(model: nn.Module, state: dict[str, torch.Tensor]) -> None:
    """Write values into all of `tensors_of`."""
    with torch.no_grad():
        for name, tensor in tensors_of(model).items():
            tensor.copy_(state[name])


def descend(model: nn.Module) -> None:
    """One step of plain gradient descent. (torch.optim would load the compiler on every rank.)"""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.sub_(LEARNING_RATE * parameter.grad)


def big_batch_gradients(case: Case) -> list[dict[str, reference.Reference | None]]:
    """The reference: one process, float64, all ranks' samples in one batch; by step and name."""
    data = case.data
    model = Net(data["options"])
    fill(model, data["states"][0])
    model.double()
    parameters = dict(model.named_parameters())
    steps = []
    for xs, ys in zip(data["x"].double(), data["y"].double(), strict=True):
        by_rank = []
        for x, y in zip(xs, ys, strict=True):  # equal shares: the mean of means is the mean
            model.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            by_rank.append({name: p.grad for name, p in parameters.items()})
        steps.append({name: _reference([g[name] for g in by_rank]) for name in parameters})
        for name, want in steps[-1].items():
            parameters[name].grad = None if want is None else want.value
        descend(model)
    return steps


def _reference(gradients: list[torch.Tensor | None]) -> reference.Reference | None:
    by_rank = [gradient for gradient in gradients if gradient is not None]
    if not by_rank:
        return None
    value = torch.stack(by_rank).mean(0)
    want = reference.computed(value, _ROUNDING, tolerance.largest(by_rank), torch.float32)
    return replace(want, parts=dict(enumerate(by_rank)), average=True)
