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
from torch.utils.checkpoint import checkpoint

from course_lib.checks import compare_tensors, reference
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.text import listed

_WIDTH = 3
_KEPT = 0.5  # of the elements, by dropout


class Watched(nn.Module):
    """tanh(x W^T + b), whose output is all that autograd saves of it; `watch` counts the living.

    dropout: draws a mask, which comes before the tanh. masks: those that were drawn, run by run; in
    the reference the first one is given.
    """

    def __init__(
        self,
        number: int,
        state: dict[str, torch.Tensor],
        watch: "Watch",
        dropout: bool = False,
        mask: torch.Tensor | None = None,
    ):
        super().__init__()
        self.masks: list[torch.Tensor] = []
        self._number, self._dropout, self._mask = number, dropout, mask
        self.linear = nn.Linear(_WIDTH, _WIDTH).double()
        self.linear.load_state_dict(state)
        self._watch = watch

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self._watch.runs += 1  # checkpoint may end a second run before the layer's last line
        h = self.linear(x)
        if self._dropout:
            mask = (torch.rand(h.shape) < _KEPT).to(h) if self._mask is None else self._mask
            self.masks.append(mask)
            h = h * mask
        output = torch.tanh(h)
        self._watch.made(self._number, output)
        return output


class Watch:
    """How often layers ran, and the most of their outputs that were in memory at once."""

    def __init__(self) -> None:
        self.runs = self.most = 0
        self._outputs: list[tuple[int, weakref.ref]] = []  # of which layer, and to the storage

    def made(self, number: int, output: torch.Tensor) -> None:
        self._outputs.append((number, weakref.ref(output.untyped_storage())))
        self.most = max(self.most, len(self.living()))

    def living(self) -> list[int]:
        """The layers whose outputs are in memory."""
        self._outputs = [each for each in self._outputs if each[1]() is not None]
        return [number for number, _ in self._outputs]


def _cases(rng: random.Random) -> list[Case]:
    sizes = [(12, 4), (12, 2), (10, 3), (5, 5), (7, 1), (1, 1)]
    plain_ones = [_case(rng, layers, k) for layers, k in sizes]
    return [*plain_ones, _case(rng, 7, 2, batch=True), _case(rng, 8, 3, dropout=True)]


def _case(
    rng: random.Random, layers: int, k: int, batch: bool = False, dropout: bool = False
) -> Case:
    """batch: x needs no gradient. dropout: every layer draws a mask."""
    generator = torch.Generator().manual_seed(rng.getrandbits(63))

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    states = [{"weight": draw(_WIDTH, _WIDTH), "bias": draw(_WIDTH)} for _ in range(layers)]
    data = {"states": states, "x": draw(2, _WIDTH), "k": k}
    data |= {"batch": batch, "dropout": dropout, "seed": _seed(rng, layers)}
    clue = "the last segment may be shorter than k" if layers % k else ""
    label = f"{layers} layers, k = {k}"
    label += ", x needs no gradient" if batch else ""
    label += ", with dropout" if dropout else ""
    return Case(1, label, data, clue)


def _seed(rng: random.Random, layers: int) -> int:
    """One whose masks let something of each row through every layer: else gradients are zero."""
    while True:
        generator = torch.Generator().manual_seed(seed := rng.getrandbits(31))
        masks = torch.stack([torch.rand(2, _WIDTH, generator=generator) for _ in range(layers)])
        if (masks < _KEPT).any(-1).all():
            return seed


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    watch = Watch()
    states, dropout = case.data["states"], case.data["dropout"]
    layers = [Watched(i, state, watch, dropout) for i, state in enumerate(states)]
    x = case.data["x"].clone().requires_grad_(not case.data["batch"])
    torch.manual_seed(case.data["seed"])
    output = answer(layers, x, case.data["k"])
    if not isinstance(output, torch.Tensor):
        return {"output": plain(output)}
    seen = {"output": plain(output), "kept": watch.living(), "forward": watch.runs}
    if not output.requires_grad:
        return {**seen, "cut": True}
    output.sum().backward()
    seen |= {"most": watch.most, "runs": watch.runs, "x": plain(x.grad)}
    seen["masks"] = [layer.masks for layer in layers]
    seen["grads"] = [plain(layer.linear.weight.grad) for layer in layers]
    return seen


def _judge(case: Case, observation: Observation) -> Finding | None:
    seen = observation.values[0]
    layers, x = _reference(case, seen)
    output = nn.Sequential(*layers)(x)
    output.sum().backward()
    if not isinstance(seen["output"], torch.Tensor):
        kind = kind_of(seen["output"])
        return Finding("return the output of the last layer", expected="a tensor", got=kind)
    looks = _output_looks(case, seen)
    if finding := compare_tensors.mismatch(
        seen["output"], reference.computed(output.detach()), 0, looks
    ):
        return Finding(f"the output: {finding.likely}", expected=finding.expected, got=finding.got)
    if "cut" in seen:
        return Finding(
            "the output is right, but it does not require grad, so no layer would learn: "
            + (
                "x is a batch of data here, which needs no gradient, and the layers' parameters do "
                "(with use_reentrant=True, checkpoint looks at x only)"
                if case.data["batch"]
                else "run the segments through checkpoint(..., use_reentrant=False), or an "
                "autograd.Function of your own"
            )
        )
    for number, layer in enumerate(layers):
        want, got = reference.gradient(layer.linear.weight), seen["grads"][number]
        if got is None:
            return Finding(f"layer {number} got no gradient: backward must run its segment again")
        if finding := compare_tensors.mismatch(got, reference.computed(want), 0):
            return Finding(
                f"the gradient of layer {number}: {_cause(case, seen) or finding.likely}",
                expected=finding.expected,
                got=finding.got,
            )
    if not case.data["batch"]:
        want = reference.gradient(x)
        if seen["x"] is None or compare_tensors.mismatch(seen["x"], reference.computed(want), 0):
            return Finding("the gradient of x is missing or wrong: the first segment passes it on")
    return _structure(case, seen)


def _output_looks(case: Case, seen: dict[str, Any]) -> dict[str, torch.Tensor]:
    """What comes of some of the layers, or of one segment over and over."""
    n, k = len(case.data["states"]), case.data["k"]
    layers, x = _reference(case, seen)
    last = layers[(n - 1) // k * k :]
    runs = {
        f"that of the first {n - n % k} layers: the last segment is shorter than k": layers[
            : n - n % k
        ],
        "that of the first segment alone": layers[:k],
        "that of the last segment, over and over: a function that is made in a loop looks its "
        "names up when it runs, so bind them": last * -(-n // k),
        "that of the layers from the last to the first": layers[::-1],
    }
    with torch.no_grad():
        found = {why: nn.Sequential(*chosen)(x) for why, chosen in runs.items()}
        right = nn.Sequential(*layers)(x)
    return {why: each for why, each in found.items() if not torch.equal(each, right)}


def _reference(case: Case, seen: dict[str, Any]) -> tuple[list[Watched], torch.Tensor]:
    """Layers and x to compute with, with the masks that the answer's forward pass drew."""
    dropout = case.data["dropout"]
    masks = [drawn[0] if drawn else None for drawn in seen.get("masks", [])]
    masks = masks or [None] * len(case.data["states"])
    layers = [
        Watched(i, state, Watch(), dropout, mask)
        for i, (state, mask) in enumerate(zip(case.data["states"], masks, strict=True))
    ]
    return layers, case.data["x"].clone().requires_grad_(not case.data["batch"])


def _cause(case: Case, seen: dict[str, Any]) -> str:
    """What is known to give just these gradients."""
    if any(len(m) > 1 and not torch.equal(m[0], m[1]) for m in seen["masks"]):
        return (
            "the second run of a segment drew another dropout mask than the first. Put the random "
            "state back before it, as checkpoint does by itself (preserve_rng_state)"
        )
    layers, x = _reference(case, seen)
    _late_bound(layers, x, case.data["k"]).sum().backward()
    late = [layer.linear.weight.grad for layer in layers]
    pairs = zip(late, seen["grads"], strict=True)
    if all(a is not None and b is not None and torch.allclose(a, b) for a, b in pairs):
        return (
            "in backward every segment ran the layers of the last one. A function that is made in "
            "a loop looks its names up when it runs: bind them, as nn.Sequential(*layers) does"
        )
    return ""


def _late_bound(layers: list[Watched], x: torch.Tensor, k: int) -> torch.Tensor:
    """The mistake of that name."""
    for start in range(0, len(layers), k):
        segment = nn.Sequential(*layers[start : start + k])
        x = checkpoint(lambda h: segment(h), x, use_reentrant=False)  # noqa: B023
    return x


def _structure(case: Case, seen: dict[str, Any]) -> Finding | None:
    n, k = len(case.data["states"]), case.data["k"]
    if seen["forward"] > n:
        return Finding(
            "right numbers, but layers ran more than once in the forward pass",
            expected=f"{n} runs of a layer",
            got=f"{seen['forward']}",
        )
    segments = -(-n // k)
    borders = {*range(k - 1, n, k), n - 1}
    kept = set(seen["kept"])
    # The last segment, whose backward comes first, may keep its inside.
    if off := borders - kept or kept - borders - set(range((segments - 1) * k, n)):
        likely = (
            "right numbers, but after the forward pass fewer activations are kept than one for "
            "each segment: cut where k says"
            if off <= borders
            else "right numbers, but after the forward pass too many activations are kept: only "
            "one for each segment of k layers"
        )
        if k > 1 and kept == _of_k_segments(n, k):
            likely = (
                "right numbers, but these are k segments, as checkpoint_sequential(layers, k, x) "
                "makes them: segments of k layers are expected"
            )
        return Finding(
            likely,
            expected=f"the outputs of layers {listed(sorted(borders))} (n = {n}, k = {k})",
            got=f"those of layers {listed(sorted(kept))}",
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


def _of_k_segments(n: int, k: int) -> set[int]:
    """Whose outputs are kept if there are k segments, and the last one is not checkpointed."""
    size = n // k
    begin = size * (k - 1)
    return {*range(size - 1, begin, size), *range(begin, n)}


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
    contract=Contract(
        takes="x with or without a gradient; layers with dropout, too",
        gives="dropout draws the same again when a segment runs again",
        allowed=frozenset(),
        may=frozenset({"random"}),
    ),
)
