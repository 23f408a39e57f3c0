"""The networks that go through a pipeline in the checks, and their gradients in one process."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from course_lib.checks import compare_tensors, reference, tolerance
from course_lib.checks.call_answer import kind_of
from course_lib.checks.exercise import Case, Finding
from course_lib.checks.profiler_labels import label_of, moment
from course_lib.checks.returned_numbers import close, number

_LOSS = 1e-4
_ROUNDING = 1e-4  # of the largest gradient of a stage: float32 through a few layers
FROZEN = "frozen"
PASS = label_of("pass")

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Watched(nn.Module):
    """A stage, (..., width) -> (..., width), that notes what is done with it.

    passes: "F0", "B0", in order, by the number of the forward. given: what it was called with.
    most: of how many forwards it held tensors for backward at once.
    waiting: how many inputs of forwards were alive at once, as a forward began.
    """

    def __init__(self, width: int, frozen: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width), requires_grad=not frozen)
        self.passes: list[str] = []
        self.given: list[torch.Tensor] = []
        self.most = 0
        self.waiting = 0
        self._held: Counter[int] = Counter()
        self._inputs: list[StorageWeakRef] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        number = len(self.given)
        self.given.append(x.detach().clone())
        self._inputs.append(StorageWeakRef(x.untyped_storage()))
        self._inputs = [each for each in self._inputs if not each.expired()]
        self.waiting = max(self.waiting, len(self._inputs))
        self._runs(f"F{number}")
        keep = partial(_Saved, self._held, number)
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved.tensor):
            h = torch.tanh(self.linear(x)) * self.scale
        self.most = max(self.most, len(+self._held))
        if h.requires_grad:
            h.register_hook(lambda _: self._runs(f"B{number}"))
        return h

    def _runs(self, name: str) -> None:
        self.passes.append(name)
        moment(PASS)


class _Saved:
    """A tensor that autograd keeps; it takes itself off the list when it is gone."""

    def __init__(self, held: Counter[int], number: int, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self._held, self._number = held, number
        held[number] += 1

    def __del__(self) -> None:
        self._held[self._number] -= 1


def loss_of(output: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """A mean over samples that nobody guesses, and in which the two play different parts."""
    return (output - 2 * targets).square().mean()


def network_data(
    rng: random.Random,
    stages: int,
    samples: int,
    more: tuple[int, ...] = (),
    dtype: torch.dtype = torch.float32,
) -> dict[str, Any]:
    """Weights of every stage, inputs and targets. more: dimensions between samples and width."""
    generator = torch.Generator().manual_seed(rng.getrandbits(63))
    width = rng.randint(3, 6)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=dtype)

    template = Watched(width).state_dict()
    return {
        "states": [{n: drawn(*t.shape) for n, t in template.items()} for _ in range(stages)],
        "x": drawn(samples, *more, width),
        "y": drawn(samples, *more, width),
    }


def stage_module(case: Case, stage: int) -> Watched:
    state = case.data["states"][stage]
    module = Watched(len(state["scale"]), frozen=stage in case.data.get(FROZEN, ()))
    module.to(state["scale"].dtype).load_state_dict(state)
    return module


def moved(case: Case, stage: int, module: Watched) -> list[str]:
    """Parameters of a stage that are not what they were."""
    before, now = case.data["states"][stage], module.state_dict()
    return [name for name, tensor in before.items() if not torch.equal(tensor, now[name])]


def wrong_parameters(values: list[dict[str, Any]]) -> Finding | None:
    for rank, seen in enumerate(values):
        for name in seen["moved"]:
            return Finding(
                f"the gradients are right, but the parameter {name!r} itself has changed: the step "
                "is the optimizer's, and comes later",
                rank,
            )
    return None


# ---------------------------------------------------------------------------------------------

Gradients = list[dict[str, torch.Tensor | None]]


def one_process(
    case: Case,
    loss: Loss = loss_of,
    rows: slice = slice(None),
    targets: torch.Tensor | None = None,
) -> tuple[float, Gradients]:
    """Loss and gradients by stage for the whole batch, or for some rows of it, in float64."""
    stages = [stage_module(case, s).double() for s in range(len(case.data["states"]))]
    h = case.data["x"][rows].double()
    for stage in stages:
        h = stage(h)
    y = case.data["y"] if targets is None else targets
    value = loss(h, y[rows].double())
    value.backward()
    return value.item(), [{n: p.grad for n, p in stage.named_parameters()} for stage in stages]


def other_losses(case: Case) -> dict[str, Gradients]:
    """The gradients of another loss than the one that was passed in."""
    mistakes: dict[str, Loss] = {
        "that of the mean squared error: call the `loss` that is passed in": (
            nn.functional.mse_loss
        ),
        "that of loss(targets, output): the output comes first": lambda a, b: loss_of(b, a),
    }
    return {name: one_process(case, loss)[1] for name, loss in mistakes.items()}


NAN = (
    "it is not a number. Only rank 0 has the inputs and only the last rank the targets; elsewhere "
    "they are filled with nan. Or is it memory that nothing was written to?"
)


def wrong_gradient(
    got: torch.Tensor | None,
    gradients: Gradients,
    rank: int,
    name: str,
    mistakes: Mapping[str, Gradients],
    parts: int = 1,
) -> Finding | None:
    """One gradient of rank's stage against that of one process, of which `gradients` has all.

    mistakes: what it may be instead. parts: microbatches of a batch.
    """
    exact, title = gradients[rank][name], f"gradient of {name!r} on rank {rank}"
    if exact is None:
        likely = f"{title}: this parameter is frozen, and its .grad should stay None"
        return None if got is None else Finding(likely, rank)
    if got is None:
        likely = (
            f"{title}: there is none. Does backward run on this rank, and does it begin from the "
            "gradient that came?"
        )
        return Finding(likely, rank, got="None")
    largest = tolerance.largest(each for each in gradients[rank].values() if each is not None)
    want = reference.computed(exact, _ROUNDING, largest, got.dtype)
    finding = compare_tensors.mismatch(got, want, rank)
    if finding is None:
        return None
    if got.isnan().any():
        return replace(finding, likely=f"{title}: {NAN}")
    looks = {why: those[rank][name] for why, those in mistakes.items()}
    fits = [why for why, look in looks.items() if _is(got, look, want.tolerance)]
    if fits:
        return replace(finding, likely=f"{title}: this is {'; or '.join(fits)}")
    if parts > 1 and ((got.double() - parts * exact).abs() <= parts * want.tolerance).all():
        return replace(
            finding,
            likely=f"{title}: exactly m = {parts} times the reference. The loss of a microbatch is "
            "a mean over few samples: divide it by m before its backward",
        )
    if not got.any():
        likely = f"{title}: all zeros. Is what arrived here the gradient of what was sent?"
        return replace(finding, likely=likely)
    return replace(finding, likely=f"{title}: {finding.likely}")


def wrong_loss(
    returned: Any, loss: float, rank: int, rule: str, mistakes: Mapping[str, float] | None = None
) -> Finding | None:
    """Why what a rank returned is not the loss of the batch; None if it is.

    rule: who returns what. mistakes: what it may be instead.
    """
    got = number(returned)
    if got is None:
        return Finding(rule, rank, expected=f"{loss:.6g}", got=kind_of(returned))
    if close(got, loss, _LOSS):
        return None
    fits = [why for why, other in (mistakes or {}).items() if close(got, other, _LOSS)]
    causes = [NAN] if math.isnan(got) else fits[:1]
    likely = ", and ".join([rule, *causes])
    return Finding(likely, rank, expected=f"{loss:.6g}", got=f"{got:.6g}")


def _is(got: torch.Tensor, other: torch.Tensor | None, slack: torch.Tensor) -> bool:
    if other is None or got.shape != other.shape:
        return False
    return bool(((got.double() - other).abs() <= slack).all())
