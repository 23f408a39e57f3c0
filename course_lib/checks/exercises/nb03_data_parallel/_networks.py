"""A small network with what real models have, in float64, and its gradients in one process."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from course_lib.checks import tolerance
from course_lib.checks.exercise import Finding
from course_lib.checks.format_tensor import glimpse

INPUTS, OUTPUTS = 4, 2
EXACT = 1e-6  # of the largest gradient: weights such as rows / total may be float32

# Options of `Net`
FROZEN, UNUSED, TIED, BRANCH, CROSSED = "frozen", "unused", "tied", "branch", "crossed"
TRAITS = {
    FROZEN: "a frozen parameter",
    UNUSED: "an unused layer",
    TIED: "a weight shared by two layers",
    BRANCH: "a layer that only rank 0 uses",
    CROSSED: "layers that are registered in another order than they are used",
}


class Net(nn.Module):
    """(B, 4) -> (B, 2), with what real models have: `options` out of the five above.

    with_branch: whether this rank uses the layer of the option "branch".
    """

    def __init__(self, options: Sequence[str] = (), with_branch: bool = False):
        super().__init__()
        self.options, self.with_branch = options, with_branch
        if CROSSED in options:
            self.middle = nn.Linear(6, 6, bias=False)
        self.first = nn.Linear(INPUTS, 6)
        if CROSSED not in options:
            self.middle = nn.Linear(6, 6, bias=False)
        if BRANCH in options:
            self.detour = nn.Linear(6, 6)
        if UNUSED in options:
            self.spare = nn.Linear(6, 6)
        self.last = nn.Linear(6, OUTPUTS)
        if FROZEN in options:
            self.first.bias.requires_grad_(False)
        if TIED in options:
            self.again = nn.Linear(6, 6, bias=False)
            self.again.weight = self.middle.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(self.middle(torch.tanh(self.first(x))))
        if BRANCH in self.options and self.with_branch:
            h = torch.tanh(self.detour(h))
        if TIED in self.options:
            h = torch.tanh(self.again(h))
        return self.last(h)


def make(data: Mapping[str, Any], with_branch: bool = False) -> Net:
    """The network of a case, with the weights of the case."""
    model = Net(data["options"], with_branch).double()
    model.load_state_dict(data["state"])
    return model


def network_data(rng: random.Random, options: Sequence[str], samples: int) -> dict[str, Any]:
    """Weights, and `samples` rows of inputs and targets."""
    generator = torch.Generator().manual_seed(rng.getrandbits(63))

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    state = {name: numbers(*t.shape) / 2 for name, t in Net(options).state_dict().items()}
    if TIED in options:
        state["again.weight"] = state["middle.weight"]
    x, y = numbers(samples, INPUTS), numbers(samples, OUTPUTS)
    return {"options": list(options), "state": state, "x": x, "y": y}


def mean_squares(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The loss: a mean over the rows, and another one when its arguments change places."""
    return nn.functional.mse_loss(1.5 * outputs, targets)


# ---------------------------------------------------------------------------------------------

Gradients = dict[str, torch.Tensor]


def gradients(data: Mapping[str, Any], rows: slice, with_branch: bool = False) -> Gradients:
    """In one process: of the mean loss over these rows; zeros where there is none.

    Frozen parameters are left out.
    """
    model = make(data, with_branch)
    if len(data["x"][rows]):
        mean_squares(model(data["x"][rows]), data["y"][rows]).backward()
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad
        for name, p in model.named_parameters()
        if p.requires_grad
    }


def unused_names(data: Mapping[str, Any]) -> set[str]:
    """Parameters that take no part in the loss: their gradient may be None or zero."""
    return {name for name in Net(data["options"]).state_dict() if name.startswith("spare")}


def weighted(parts: Sequence[Gradients], weights: Sequence[float]) -> Gradients:
    """sum of weight * gradient, by name."""
    return {
        name: torch.stack(
            [weight * part[name] for weight, part in zip(weights, parts, strict=True)]
        ).sum(0)
        for name in parts[0]
    }


def alike(got: Mapping[str, torch.Tensor | None], want: Gradients, unused: set[str]) -> bool:
    return all(difference(got, want, name, name in unused) == "" for name in want)


def wrong_gradient(
    got: Mapping[str, torch.Tensor | None],
    want: Gradients,
    rank: int,
    unused: set[str],
    lookalikes: Mapping[str, Gradients],
) -> Finding | None:
    """The first parameter whose gradient is wrong, and what all of them are instead, if known.

    lookalikes: by what to say about them.
    """
    for name, exact in want.items():
        found = got.get(name)
        problem = difference(got, want, name, name in unused)
        if not problem:
            continue
        known = [text for text, other in lookalikes.items() if alike(got, other, unused)]
        return Finding(
            f"gradient of {name!r}: {known[0] if known else problem}",
            rank,
            expected=glimpse(exact),
            got="None" if found is None else glimpse(found),
        )
    for name, found in got.items():
        if name not in want and found is not None:
            return Finding(
                f"parameter {name!r} is frozen, and has a gradient: an optimizer with weight decay "
                "moves whatever has one, even zeros. Leave out what does not require grad",
                rank,
                expected="None",
                got=glimpse(found),
            )
    return None


def difference(
    those: Mapping[str, torch.Tensor | None], want: Gradients, name: str, may_be_none: bool
) -> str:
    """Why the gradient of this name is not the one that is wanted, "" if it is."""
    got, exact = those.get(name), want[name]
    if got is None:
        return "" if may_be_none else "it is None: no gradient has come there"
    if got.shape != exact.shape or got.dtype != exact.dtype:
        return f"its shape or dtype is not that of the parameter ({tuple(exact.shape)}, float64)"
    if not torch.isfinite(got).all():
        return "it has values that are not finite"
    slack = tolerance.share_of_largest(exact, EXACT, tolerance.largest(want.values()))
    if ((got - exact).abs() <= slack).all() or (may_be_none and not got.any()):
        return ""
    if not got.any():
        return "all zeros"
    ratio = float((got.flatten() @ exact.flatten()) / (exact.flatten() @ exact.flatten()))
    if abs(ratio - 1) > 1e-4 and ((got - ratio * exact).abs() <= abs(ratio) * slack).all():
        return f"exactly {ratio:.4g} times the reference"
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        if torch.equal(got, got.to(dtype).to(got.dtype)):
            name = str(dtype).removeprefix("torch.")
            return f"these are numbers of {name}: something went through that dtype"
    return "the values differ"


def rows_of(rows: Sequence[int]) -> list[slice]:
    """Each rank's rows of the whole batch, for so many rows on each rank."""
    ends = [sum(rows[: rank + 1]) for rank in range(len(rows))]
    return [slice(end - count, end) for end, count in zip(ends, rows, strict=True)]


def having(options: Sequence[str]) -> str:
    """ ", with a frozen parameter, an unused layer"."""
    return f", with {', '.join(TRAITS[option] for option in options)}" if options else ""


def nbytes_of(data: Mapping[str, Any], but: set[str] | frozenset[str] = frozenset()) -> int:
    """Bytes of all gradients, each shared weight once."""
    parameters = make(data).named_parameters()
    return sum(p.nbytes for name, p in parameters if p.requires_grad and name not in but)
