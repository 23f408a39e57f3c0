"""Two numbers that every rank needs and no rank has: over which axes are they reduced, and how?

loss_everywhere(loss, groups)
    `loss` is the mean loss of this replica's samples on the ranks of the last stage, None on the
    others. Returns the mean over the whole batch, on every rank.

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

from course_lib.checks import gates
from course_lib.checks.answers import kind_of, plain
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.numbers import close, number

from .axes import (
    AXES,
    Sizes,
    groups,
    named,
    places,
    size,
)

_EXACT = 1e-9
_FEW_BYTES = 400  # some numbers, and not a gradient
_MESHES: tuple[Sizes, ...] = (
    {"pipeline": 2, "data": 1, "tensor": 2},
    {"pipeline": 1, "data": 2, "tensor": 2},
    {"pipeline": 2, "data": 2, "tensor": 1},
    {"tensor": 1, "data": 3, "pipeline": 1},
    {"data": 1, "tensor": 1, "pipeline": 3},
)


def _open(sizes: Sizes) -> dict[str, dist.ProcessGroup]:
    """This rank's group along each axis."""
    mine = {}
    for axis in AXES:
        for ranks in groups(axis, sizes):
            group = dist.new_group(ranks)
            if dist.get_rank() in ranks:
                mine[axis] = group
    return mine


def _few_bytes(observation: Observation, what: str) -> Finding | None:
    for rank in range(len(observation.values)):
        rule = f"{what}: one number, or a few, has to travel"
        if finding := gates.sent(observation, rank, 0, _FEW_BYTES, rule):
            return finding
    return None


# ---------------------------------------------------------------------------------------------


def _loss_cases(rng: random.Random) -> list[Case]:
    cases = []
    for sizes in _MESHES:
        losses = [round(rng.uniform(0.5, 3), 3) for _ in range(sizes["data"])]
        cases.append(Case(size(sizes), named(sizes), {"sizes": sizes, "losses": losses}))
    return cases


def _loss_on_rank(answer: Callable, case: Case) -> Any:
    sizes = case.data["sizes"]
    place = places(sizes)[dist.get_rank()]
    loss = None
    if place["pipeline"] == sizes["pipeline"] - 1:
        loss = torch.tensor(case.data["losses"][place["data"]], dtype=torch.float64)
    return plain(answer(loss, _open(sizes)))


def _judge_loss(case: Case, observation: Observation) -> Finding | None:
    sizes, losses = case.data["sizes"], case.data["losses"]
    want = sum(losses) / len(losses)
    for rank, (answered, place) in enumerate(zip(observation.values, places(sizes), strict=True)):
        got = number(answered)
        if got is None or not close(got, want, _EXACT):
            return Finding(
                _loss_cause(got, answered, losses, sizes, place),
                rank,
                input=f"{case.label}; the replicas' losses are {losses}",
                expected=f"{want:.6f}",
                got=kind_of(answered) if got is None else f"{got:.6f}",
            )
    return _few_bytes(observation, "the losses are right, but this rank sent more than it has to")


def _loss_cause(
    got: float | None, answered: Any, losses: list[float], sizes: Sizes, place: Sizes
) -> str:
    if got is None:
        stage = "not on the last stage" if place["pipeline"] < sizes["pipeline"] - 1 else "there"
        return (
            f"this rank ({stage}) returned {kind_of(answered)}: the loss is to be known on every "
            "rank"
        )
    total, mean, data = sum(losses), sum(losses) / len(losses), sizes["data"]
    own = losses[place["data"]]
    lookalikes: dict[str, float] = {
        "this is the sum over the replicas: divide by the size of the data axis": total,
        "this is the loss of one replica alone: the data axis has to average": own,
        (
            "the sum is right, and divided by the number of ranks: only the data axis has "
            "different losses"
        ): total / size(sizes),
        "the loss is added up once for each rank of the tensor axis: they all have the same": mean
        * sizes["tensor"],
        "this rank still has what it began with, zero: nothing has arrived along the pipeline": 0.0,
        "divided by the pipeline's size as well: only the last stage has a loss to count": mean
        / sizes["pipeline"],
    }
    for cause, value in lookalikes.items():
        if close(got, value, _EXACT) or (value == got == 0.0):
            return cause
    if math.isnan(got):
        return "this is nan: begin with zeros where there is no loss, not with an empty tensor"
    if data > 1 and min(losses) <= got <= max(losses):
        return "each replica has as many samples: the mean of their losses counts them equally"
    return "sum over the pipeline, where all stages but the last give zero, and average over data"


# ---------------------------------------------------------------------------------------------


def _norm_cases(rng: random.Random) -> list[Case]:
    cases = []
    for sizes in (_MESHES[1], _MESHES[0], *_MESHES[2:]):
        layers: list[list[list[list[float]]]] = []  # [stage][tensor place] -> tensors
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
    return [round(rng.uniform(-2, 2), 2) for _ in range(rng.randint(1, 4))]


def _of_rank(case: Case, place: Sizes) -> tuple[list[list[float]], list[bool]]:
    stage = place["pipeline"]
    return case.data["layers"][stage][place["tensor"]], case.data["split"][stage]


def _norm_on_rank(answer: Callable, case: Case) -> Any:
    sizes = case.data["sizes"]
    tensors, split = _of_rank(case, places(sizes)[dist.get_rank()])
    gradients = [torch.tensor(values, dtype=torch.float64) for values in tensors]
    return plain(answer(gradients, list(split), _open(sizes)))


def _judge_norm(case: Case, observation: Observation) -> Finding | None:
    sizes = case.data["sizes"]
    lookalikes = _norms(case)
    want = lookalikes.pop("")
    for rank, (answered, place) in enumerate(zip(observation.values, places(sizes), strict=True)):
        got = number(answered)
        if got is None or not close(got, want, _EXACT):
            return Finding(
                "this is not a number"
                if got is None
                else _norm_cause(got, lookalikes, case, place),
                rank,
                input=case.label,
                expected=f"{want:.6f}",
                got=kind_of(answered) if got is None else f"{got:.6f}",
            )
    return _few_bytes(observation, "the norm is right, but this rank sent gradients")


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
        "tensors that are not split are left out": math.sqrt(parted),
    }


def _norm_cause(got: float, lookalikes: Mapping[str, float], case: Case, place: Sizes) -> str:
    sizes = case.data["sizes"]
    for cause, value in lookalikes.items():
        if close(got, value, _EXACT):
            return cause
    tensors, split = _of_rank(case, place)
    own = math.sqrt(sum(v * v for values in tensors for v in values))
    if close(got, own, _EXACT) or got == own == 0:
        return "this is the norm of this rank's gradients alone: clipping by it differs by rank"
    stage = place["pipeline"]
    of_stage = sum(
        v * v
        for part in range(sizes["tensor"])
        for values, s in zip(case.data["layers"][stage][part], split, strict=True)
        if s or part == 0
        for v in values
    )
    if close(got, math.sqrt(of_stage), _EXACT) or got == of_stage == 0:
        return "this is the norm of this stage's gradients: the other stages have layers as well"
    return (
        "sum the squares: parts over the tensor axis, copies once, then over the pipeline; then "
        "take the root"
    )


LOSS_EVERYWHERE = Exercise(
    name="loss_everywhere",
    signature="(loss, groups)",
    notebook="07_three_d_parallelism",
    cases=_loss_cases,
    on_rank=_loss_on_rank,
    judge=_judge_loss,
    hints=(
        """
        Which ranks have a loss, and which of these have different ones? Only one axis averages;
        another one only passes the number on.
        """,
        """
        Where there is no loss, begin with a zero. What does a sum over the pipeline axis give then?
        Every rank has to take part in each collective.
        """,
        """
        total = torch.zeros((), dtype=torch.float64); add the loss if there is one; all_reduce over
        groups["pipeline"], then over groups["data"]; divide by the size of the data group.
        """,
    ),
    passed="on 5 meshes every rank knows the mean over the batch",
)

NORM_ON_A_MESH = Exercise(
    name="norm_on_a_mesh",
    signature="(gradients, split, groups)",
    notebook="07_three_d_parallelism",
    cases=_norm_cases,
    on_rank=_norm_on_rank,
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
)
