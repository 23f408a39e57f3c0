"""A number that every rank needs and no rank has: over which axes is it reduced, and how?

norm_on_a_mesh(gradients, split, groups)
    `gradients` are those of this rank's layers, already averaged over the data axis. split[i] says
    whether gradients[i] is this rank's part of a matrix, or a copy that every rank of the tensor
    axis has. Returns the norm of the whole model's gradient, on every rank.

`groups` has the process group of each axis.
"""

import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import close, number
from course_lib.checks.tolerance import EXACT

from ._across_axes import MESHES, SHORT, few_bytes, groups_of_mesh, is_short, open
from ._axes import (
    Sizes,
    coordinates,
    named,
    size,
)


def _norm_cases(rng: random.Random) -> list[Case]:
    cases = []
    for sizes in (MESHES[1], MESHES[0], *MESHES[2:]):
        layers: list[list[list[list[float]]]] = []  # [stage][tensor coordinate] -> tensors
        split: list[list[bool]] = []
        for stage in range(sizes["pipeline"]):
            kinds = [rng.random() < 0.5 for _ in range(rng.randint(1, 3))] + [True, False]
            if stage == 1 and sizes["tensor"] == 1:
                kinds = []  # a stage with nothing to train
            copies = [_numbers(rng) for _ in kinds]
            split.append(kinds)
            layers.append(
                [
                    [_numbers(rng) if s else c for s, c in zip(kinds, copies, strict=True)]
                    for _ in range(sizes["tensor"])
                ]
            )
        data = {"sizes": sizes, "layers": layers, "split": split}
        cases.append(Case(size(sizes), named(sizes), data))
    return cases


def _numbers(rng: random.Random) -> list[float]:
    """None of them near zero, so that each tensor counts."""
    return [rng.choice((-1, 1)) * round(rng.uniform(0.2, 2), 2) for _ in range(rng.randint(1, 4))]


def _of_rank(case: Case, at: Sizes) -> tuple[list[list[float]], list[bool]]:
    stage = at["pipeline"]
    return case.data["layers"][stage][at["tensor"]], case.data["split"][stage]


def _of_its_place(layers: list[list], case: Case, rank: int) -> list[list]:
    at = coordinates(case.data["sizes"])[rank]
    return [
        [
            tensors if (stage, part) == (at["pipeline"], at["tensor"]) else None
            for part, tensors in enumerate(parts)
        ]
        for stage, parts in enumerate(layers)
    ]


def _norm_on_rank(answer: Callable, case: Case) -> Any:
    sizes = case.data["sizes"]
    tensors, split = _of_rank(case, coordinates(sizes)[dist.get_rank()])
    gradients = [torch.tensor(values, dtype=torch.float64) for values in tensors]
    return plain(answer(gradients, list(split), open(sizes)))


def _judge_norm(case: Case, observation: Observation) -> Finding | None:
    sizes = case.data["sizes"]
    lookalikes = _norms(case)
    want = lookalikes.pop("")
    for rank, (answered, at) in enumerate(zip(observation.values, coordinates(sizes), strict=True)):
        got = number(answered)
        if got is None or not close(got, want, EXACT):
            return Finding(
                "this is not a number"
                if got is None
                else SHORT
                if is_short(got, want)
                else _norm_cause(got, lookalikes, case, at),
                rank,
                input=case.label,
                expected=f"{want:.6f}",
                got=kind_of(answered) if got is None else f"{got:.6f}",
            )
    return few_bytes(observation, "the norm is right, but this rank sent gradients")


def _norms(case: Case) -> dict[str, float]:
    """The norm, under "", and what it becomes by well-known slips, by their causes."""
    sizes, split = case.data["sizes"], case.data["split"]
    layers = case.data["layers"]

    def squares(stage: int, part: int, kind: bool) -> float:
        tensors = zip(layers[stage][part], split[stage], strict=True)
        return sum(v * v for values, s in tensors if s is kind for v in values)

    stages, parts = range(sizes["pipeline"]), range(sizes["tensor"])
    parted = sum(squares(stage, part, True) for stage in stages for part in parts)
    copied = sum(squares(stage, 0, False) for stage in stages)
    whole = parted + copied
    locals_ = [
        math.sqrt(squares(stage, part, True) + squares(stage, part, False))
        for stage in stages
        for part in parts
    ]
    return {
        "": math.sqrt(whole),
        "this is the square of the norm: take the root at the end": whole,
        (
            "tensors that every rank of the tensor axis has a copy of are counted once for each: "
            "add their squares on one of these ranks only"
        ): math.sqrt(parted + sizes["tensor"] * copied),
        (
            "the data axis is summed over as well, and its ranks all have the same gradients"
        ): math.sqrt(whole * sizes["data"]),
        (
            "everything is counted for each rank that has it: the data axis has copies of all, the "
            "tensor axis of some"
        ): math.sqrt(sizes["data"] * (parted + sizes["tensor"] * copied)),
        "norms do not add up, their squares do": sum(locals_),
        "norms of stages do not add up, their squares do": sum(
            math.sqrt(sum(squares(stage, part, True) for part in parts) + squares(stage, 0, False))
            for stage in stages
        ),
        "tensors that are not split are left out": math.sqrt(parted),
    }


def _norm_cause(got: float, lookalikes: Mapping[str, float], case: Case, at: Sizes) -> str:
    sizes = case.data["sizes"]
    for cause, value in lookalikes.items():
        if close(got, value, EXACT):
            return cause
    tensors, split = _of_rank(case, at)
    own = math.sqrt(sum(v * v for values in tensors for v in values))
    if close(got, own, EXACT) or got == own == 0:
        return "this is the norm of only this rank's gradients: clipping by it differs by rank"
    stage = at["pipeline"]
    of_stage = sum(
        v * v
        for part in range(sizes["tensor"])
        for values, s in zip(case.data["layers"][stage][part], split, strict=True)
        if s or part == 0
        for v in values
    )
    if close(got, math.sqrt(of_stage), EXACT) or got == of_stage == 0:
        return "this is the norm of this stage's gradients: the other stages have layers as well"
    return (
        "sum the squares: parts over the tensor axis, copies once, then over the pipeline; then "
        "take the root"
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(gradients, split, groups)",
    cases=_norm_cases,
    on_rank=_norm_on_rank,
    own={"layers": _of_its_place},
    groups=groups_of_mesh,
    judge=_judge_norm,
    hints=(
        """
        For each axis, ask: do its ranks have different elements of the gradient, or the same ones?
        Only different ones may be added.
        """,
        """
        Data axis: the same, so leave it out. Pipeline axis: all different. Tensor axis: parts
        differ, copies do not. Squares can be added, norms cannot.
        """,
        """
        Add up the squares of the parts and, separately, of the copies. all_reduce the first over
        groups["tensor"]; add the second; all_reduce the result over groups["pipeline"]; take the
        root.
        """,
    ),
    passed="on 5 meshes, parts added once, copies once, replicas not at all",
    contract=Contract(
        takes="gradients in float64, on some ranks none",
        gives="the result is a number or a tensor of one",
        sends="a rank sends a few numbers, at most 400 bytes",
    ),
)
