"""ZeRO-3, a whole step: gather a layer before it is needed, release it after, and prefetch.

zero3_step(units, x, y, loss) -> the loss
    units: the layers in order. unit.module is the layer, unit.shard this rank's part of it,
    unit.gather() returns a handle, unit.release() frees the parameters, unit.reduce() averages the
    gradients into unit.shard.grad and frees them. At most two layers are gathered at any time.
"""

import itertools
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import mse_loss

from course_lib.checks import compare_tensors, reference, traffic_limits
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract, Waits
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import along
from course_lib.checks.returned_numbers import close, number
from course_lib.text import counted

from ._units import Layer, Log, Unit, padded

_SIZE = 8  # bytes of a float64


_WIDTHS = (4, 5, 7, 3, 6, 2)  # so that every layer has a different size


_BATCH = 3


_NO_GRADIENT = (
    "backward() was given None for a layer's gradient. The .grad of the next layer's input is None "
    "unless that input requires grad: h = output.detach().requires_grad_()"
)


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case(rng, 2, 3),
        _case(rng, 3, 5),
        _case(rng, 4, 4, frozen=True),
        _case(rng, 1, 3),
        _case(rng, 2, 2, tokens=True),
    ]


def _case(
    rng: random.Random, world_size: int, layers: int, frozen: bool = False, tokens: bool = False
) -> Case:
    generator = torch.Generator().manual_seed(rng.getrandbits(63))

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    states = [
        {"weight": draw(outputs, inputs), "bias": draw(outputs)}
        for inputs, outputs in itertools.pairwise(_WIDTHS[: layers + 1])
    ]
    data = {
        "states": states,
        "frozen": frozen,
        "x": draw(world_size, _BATCH, _WIDTHS[0]),
        "y": draw(world_size, _BATCH, _WIDTHS[layers]),
    }
    if tokens:
        data["x"] = torch.randint(_WIDTHS[0], (world_size, _BATCH), generator=generator)
    ranks = f"{counted(world_size, 'rank')}"
    label = f"{counted(layers, 'layer')} on {ranks}"
    label += ", one bias frozen" if frozen else ""
    label += ", x holds tokens" if tokens else ""
    clue = ""
    if tokens:
        clue = Clue(
            "x may be integers, and needs no gradient: only what passes between layers does",
            "require",
        )
    return Case(world_size, label, data, clue)


def _layers(case: Case) -> list[Layer]:
    return [
        Layer(state, frozen=case.data["frozen"] and number == 1)
        for number, state in enumerate(case.data["states"])
    ]


def _loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Another one when its arguments change places."""
    return mse_loss(1.5 * outputs, targets)


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank = dist.get_rank()
    log: Log = []
    layers = _layers(case)
    units = [Unit(number, layer, log, len(layers) - 1) for number, layer in enumerate(layers)]
    try:
        returned = answer(units, case.data["x"][rank], case.data["y"][rank], _loss)
    except RuntimeError as problem:
        if "implicitly created only for scalar outputs" in str(problem):
            # Of torch's own words nobody learns what is missing.
            problem.args = (_NO_GRADIENT,)
        raise
    return {
        "returned": plain(returned),
        "grads": [plain(unit.shard.grad) for unit in units],
        "log": log,
    }


def _judge(case: Case, observation: Observation) -> Finding | None:
    return _values(case, observation) or _kept(case, observation) or _traffic(case, observation)


def _values(case: Case, observation: Observation) -> Finding | None:
    n = case.world_size
    model = nn.Sequential(*_layers(case))
    losses = [_loss(model(x), y) for x, y in zip(case.data["x"], case.data["y"], strict=True)]
    torch.stack(losses).mean().backward()
    for rank, seen in enumerate(observation.values):
        for number_, layer in reversed(list(enumerate(model))):
            grads = [
                torch.zeros(p.shape).to(p) if p.grad is None else p.grad for p in layer.parameters()
            ]
            want, got = padded(grads, n).chunk(n)[rank], seen["grads"][number_]
            title = f"layer {number_}: shard.grad"
            if got is None:
                return Finding(f"{title} is None: call unit.reduce() after its backward", rank)
            if finding := compare_tensors.mismatch(got, reference.computed(want), rank):
                likely = f"{title}: {finding.likely}"
                return Finding(likely, rank, expected=finding.expected, got=finding.got)
        loss, due = number(seen["returned"]), losses[rank].item()
        if loss is None or not close(loss, due, 1e-9):
            shown = kind_of(seen["returned"]) if loss is None else f"{loss:.6g}"
            return Finding("return this rank's loss", rank, expected=f"{due:.6g}", got=shown)
    return None


def _kept(case: Case, observation: Observation) -> Finding | None:
    """Two layers at most, gathered one by one in each direction, none at the end."""
    for rank, seen in enumerate(observation.values):
        held: set[int] = set()
        for index, (what, unit) in enumerate(seen["log"]):
            if what == "gather":
                if unit in held:
                    return Finding(
                        f"the gradients are right, but layer {unit} was gathered while it was "
                        "there already",
                        rank,
                        got=_shown(seen["log"][: index + 1]),
                    )
                held.add(unit)
            elif what == "release":
                held.discard(unit)
            if len(held) > 2:
                return Finding(
                    "the gradients are right, but more than two layers are gathered at once: "
                    "release a layer as soon as its pass is over",
                    rank,
                    expected="at most 2 layers gathered at any time",
                    got=f"{len(held)} layers: {_shown(seen['log'][: index + 1])}",
                )
        for unit in range(1, len(case.data["states"])):
            log = seen["log"]
            if log.index(("reduce", unit)) > log.index(("B", unit - 1)):
                return Finding(
                    "the gradients are right, but whole gradients of two layers are held at once: "
                    "reduce a layer's before the next layer runs backward",
                    rank,
                    expected=f"reduce {unit} before B {unit - 1}",
                    got=_shown(log),
                )
        if held:
            return Finding(
                "the gradients are right, but at the end a layer is still gathered",
                rank,
                expected="none",
                got=f"layers {sorted(held)}",
            )
    return None


def _shown(log: Log) -> str:
    return ", ".join(f"{what} {unit}" for what, unit in log[-8:])


def _traffic(case: Case, observation: Observation) -> Finding | None:
    """Two all-gathers and a reduce-scatter; the last layer may stay from forward to backward."""
    n = case.world_size
    parts = [-(-sum(t.numel() for t in s.values()) // n) for s in case.data["states"]]
    most = 3 * (n - 1) * sum(parts) * _SIZE
    least = most - (n - 1) * parts[-1] * _SIZE
    rule = "each layer is gathered for forward and for backward, and its gradient reduce-scattered"
    for rank in range(n):
        if finding := traffic_limits.sent(observation, rank, least, most, rule):
            return finding
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(units, x, y, loss)",
    cases=_cases,
    on_rank=_on_rank,
    own={"x": along(0), "y": along(0)},
    judge=_judge,
    hints=(
        """
        Write it without prefetching first: for each unit gather().wait(), the pass, release(). The
        backward pass goes through the units in reverse, with the graph cut between layers as in a
        pipeline (lesson 05, section 2). Then move each gather one layer ahead.
        """,
        """
        Keep (h, output) of every layer, with h the detached input that requires grad. For the loss
        cut once more: top = output.detach().requires_grad_(). Backward of a layer is
        output.backward(gradient), and h.grad is the gradient for the layer before. coming =
        units[i + 1].gather() goes between coming.wait() and the pass of unit i.
        """,
        """
        Forward: coming = units[0].gather(); for each i: coming.wait(); if there is a next one,
        coming = units[i + 1].gather(); h = h.detach().requires_grad_(i > 0) (the first may be
        integers); output = units[i].module(h); keep both; units[i].release(); h = output. Loss and
        its backward on a detached top. Backward: coming = units[-1].gather(), and for reversed
        units the same with i - 1: output.backward(gradient), gradient = h.grad, release(),
        reduce().
        """,
    ),
    passed="right gradients, two layers in memory at most, and each one fetched ahead",
    contract=Contract(
        runs=lambda arguments: 1,
        changes=("units",),
        moves=("units",),
        detached=True,
        holds="at most two layers are gathered at any time, and of whole gradients those of one "
        "layer are held",
        causal=False,  # the first layer's weights are gathered, and its gradient needs none of them
        allowed=frozenset({"all_gather", "reduce_scatter"}),
        waits=(
            Waits(
                op="all_gather",
                during="when a layer runs, the gather of the next one to run is under way",
            ),
        ),
    ),
    points=3,
)
