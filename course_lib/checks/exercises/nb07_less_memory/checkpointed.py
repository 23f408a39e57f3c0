"""Activation checkpointing: keep every k-th activation, compute the others again.

checkpointed(layers, x, k) -> output
    Runs `layers` on x, so that backward works; between segments of k layers the activation is
    kept, within a segment nothing is until its backward.
"""

import random
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from course_lib.checks import compare, reference
from course_lib.checks.answers import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.exercises._training import exactly

_WIDTH = 3


class Watched(nn.Module):
    """tanh(x W^T + b), whose output is all that autograd saves of it; `watch` counts the living."""

    def __init__(self, state: dict[str, torch.Tensor], watch: "Watch"):
        super().__init__()
        self.linear = nn.Linear(_WIDTH, _WIDTH).double()
        self.linear.load_state_dict(state)
        self._watch = watch

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output = torch.tanh(self.linear(x))
        self._watch.ran(output)
        return output


class Watch:
    """How often layers ran, and the most of their outputs that were in memory at once."""

    def __init__(self) -> None:
        self.runs = self.most = 0
        self._outputs: list[weakref.ref] = []  # to their storages

    def ran(self, output: torch.Tensor) -> None:
        self.runs += 1
        self._outputs.append(weakref.ref(output.untyped_storage()))
        self.most = max(self.most, self.living())

    def living(self) -> int:
        self._outputs = [storage for storage in self._outputs if storage() is not None]
        return len(self._outputs)


def _cases(rng: random.Random) -> list[Case]:
    sizes = [(12, 4), (12, 2), (10, 3), (5, 5), (7, 1), (1, 1)]
    return [_case(rng, layers, k) for layers, k in sizes]


def _case(rng: random.Random, layers: int, k: int) -> Case:
    generator = torch.Generator().manual_seed(rng.getrandbits(63))

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    states = [{"weight": draw(_WIDTH, _WIDTH), "bias": draw(_WIDTH)} for _ in range(layers)]
    data = {"states": states, "x": draw(2, _WIDTH), "k": k}
    clue = "the last segment may be shorter than k" if layers % k else ""
    return Case(
        1, f"{layers} layers, every {k}th kept" if k > 1 else f"{layers} layers, k = 1", data, clue
    )


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    watch = Watch()
    layers = [Watched(state, watch) for state in case.data["states"]]
    x = case.data["x"].clone().requires_grad_()
    output = answer(layers, x, case.data["k"])
    if not isinstance(output, torch.Tensor):
        return {"output": plain(output)}
    seen = {"output": plain(output), "kept": watch.living(), "forward": watch.runs}
    if not output.requires_grad:
        return {**seen, "cut": True}
    output.sum().backward()
    seen |= {"most": watch.most, "runs": watch.runs, "x": plain(x.grad)}
    seen["grads"] = [plain(layer.linear.weight.grad) for layer in layers]
    return seen


def _judge(case: Case, observation: Observation) -> Finding | None:
    seen = observation.values[0]
    layers = [Watched(state, Watch()) for state in case.data["states"]]
    x = case.data["x"].clone().requires_grad_()
    output = nn.Sequential(*layers)(x)
    output.sum().backward()
    if not isinstance(seen["output"], torch.Tensor):
        kind = kind_of(seen["output"])
        return Finding("return the output of the last layer", expected="a tensor", got=kind)
    if finding := compare.mismatch(seen["output"], exactly(output.detach()), 0):
        return Finding(f"the output: {finding.likely}", expected=finding.expected, got=finding.got)
    if "cut" in seen:
        return Finding(
            "the output is right, but it does not require grad: run the segments through "
            "checkpoint(..., use_reentrant=False), or an autograd.Function of your own"
        )
    for number, layer in enumerate(layers):
        want, got = reference.gradient(layer.linear.weight), seen["grads"][number]
        if got is None:
            return Finding(f"layer {number} got no gradient: backward must run its segment again")
        if finding := compare.mismatch(got, exactly(want), 0):
            return Finding(
                f"the gradient of layer {number}: {finding.likely}",
                expected=finding.expected,
                got=finding.got,
            )
    if seen["x"] is None or (finding := compare.mismatch(seen["x"], exactly(x.grad), 0)):
        return Finding("the gradient of x is missing or wrong: the first segment passes it on")
    return _structure(case, seen)


def _structure(case: Case, seen: dict[str, Any]) -> Finding | None:
    n, k = len(case.data["states"]), case.data["k"]
    if seen["forward"] > n:
        return Finding(
            "right numbers, but layers ran more than once in the forward pass",
            expected=f"{n} runs of a layer",
            got=f"{seen['forward']}",
        )
    segments = -(-n // k)
    most = segments + k - 1  # the last segment, whose backward comes first, may keep its inside
    if not segments <= seen["kept"] <= most:
        few = seen["kept"] < segments
        likely = (
            "right numbers, but after the forward pass fewer activations are kept than one for "
            "each segment: cut where k says"
            if few
            else "right numbers, but after the forward pass too many activations are kept: only "
            "one for each segment of k layers"
        )
        return Finding(
            likely,
            expected=f"{segments} activations ({n} layers, k = {k})",
            got=f"{seen['kept']}",
        )
    if seen["most"] > segments + k + 1:
        return Finding(
            "right numbers, but in the backward pass too many activations live at once: run one "
            "segment again, go backward through it, then the one before",
            expected=f"at most {segments} + {k} + 1 activations at a time",
            got=f"{seen['most']}",
        )
    if seen["runs"] > 2 * n:
        return Finding(
            "right numbers, but layers ran more often than twice: start each segment from the "
            "activation that was kept for it",
            expected=f"at most {2 * n} runs of a layer in all",
            got=f"{seen['runs']}",
        )
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(layers, x, k)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Cut the list into segments of k layers. One segment is one function of its input; torch's
        checkpoint runs such a function and keeps nothing but the input.
        """,
        """
        from torch.utils.checkpoint import checkpoint; x = checkpoint(segment, x,
        use_reentrant=False). Let a loop go in steps of k. Mind what a function made in a loop sees
        later: nn.Sequential(*layers[i : i + k]) is bound to its own layers.
        """,
        """
        for start in range(0, len(layers), k): segment = nn.Sequential(*layers[start : start + k]);
        x = checkpoint(segment, x, use_reentrant=False). At the end return x.
        """,
    ),
    passed="n/k + k activations at most, and every layer runs twice at most",
    contract=Contract(allowed=frozenset()),
)
