"""A number that every rank needs and no rank has: over which axes is it reduced, and how?

loss_everywhere(loss, groups)
    `loss` is the mean loss of this replica's samples on the ranks of the last stage, None on the
    others. Returns the mean over the whole batch, on every rank.

`groups` has the process group of each axis.
"""

import math
import random
from collections.abc import Callable
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


def _loss_cases(rng: random.Random) -> list[Case]:
    cases = []
    for sizes in MESHES:
        # One below zero, one above, one zero; of no two is the sum anywhere near zero.
        losses = [round(rng.uniform(-3, -2), 3), round(rng.uniform(0.5, 1.5), 3), 0.0]
        losses = losses[: sizes["data"]]
        cases.append(Case(size(sizes), named(sizes), {"sizes": sizes, "losses": losses}))
    return cases


def _loss_on_rank(answer: Callable, case: Case) -> Any:
    sizes = case.data["sizes"]
    at = coordinates(sizes)[dist.get_rank()]
    loss = None
    if at["pipeline"] == sizes["pipeline"] - 1:
        loss = torch.tensor(case.data["losses"][at["data"]], dtype=torch.float64)
    return plain(answer(loss, open(sizes)))


def _of_its_replica(losses: list[float], case: Case, rank: int) -> list[float | None]:
    """Only ranks of the last stage have a loss, their replica's."""
    sizes = case.data["sizes"]
    at = coordinates(sizes)[rank]
    last = at["pipeline"] == sizes["pipeline"] - 1
    return [loss if last and i == at["data"] else None for i, loss in enumerate(losses)]


def _judge_loss(case: Case, observation: Observation) -> Finding | None:
    sizes, losses = case.data["sizes"], case.data["losses"]
    want = sum(losses) / len(losses)
    for rank, (answered, at) in enumerate(zip(observation.values, coordinates(sizes), strict=True)):
        got = number(answered)
        if got is None or not close(got, want, EXACT):
            return Finding(
                _loss_cause(got, answered, losses, sizes, at),
                rank,
                input=f"{case.label}; the replicas' losses are {losses}",
                expected=f"{want:.6f}",
                got=kind_of(answered) if got is None else f"{got:.6f}",
            )
    return few_bytes(observation, "the losses are right, but this rank sent more than it has to")


def _loss_cause(
    got: float | None, answered: Any, losses: list[float], sizes: Sizes, at: Sizes
) -> str:
    if got is None:
        stage = "not on the last stage" if at["pipeline"] < sizes["pipeline"] - 1 else "there"
        return (
            f"this rank ({stage}) returned {kind_of(answered)}: the loss must be known on every "
            "rank"
        )
    total, mean, data = sum(losses), sum(losses) / len(losses), sizes["data"]
    own = losses[at["data"]]
    if is_short(got, mean):
        return SHORT
    empty = "nothing has arrived along the pipeline"
    if own < 0:
        empty += "; or the largest over the pipeline was taken, and this loss is below 0"
    lookalikes: dict[str, float] = {
        "this is the sum over the replicas: divide by the size of the data axis": total,
        "this is the loss of only one replica: the data axis has to average": own,
        (
            "the sum is right, and divided by the number of ranks: only the data axis has "
            "different losses"
        ): total / size(sizes),
        "the loss is added up once for each rank of the tensor axis: they all have the same": mean
        * sizes["tensor"],
        f"this rank still has what it began with, zero: {empty}": 0.0,
        "divided by the pipeline's size as well: only the last stage has a loss to count": mean
        / sizes["pipeline"],
    }
    for cause, value in lookalikes.items():
        if close(got, value, EXACT) or (value == got == 0.0):
            return cause
    if math.isnan(got):
        return "this is nan: begin with zeros where there is no loss, not with an empty tensor"
    if data > 1 and min(losses) <= got <= max(losses):
        return "each replica has as many samples: the mean of their losses counts them equally"
    return "sum over the pipeline, where all stages but the last give zero, and average over data"


EXERCISE = Exercise(
    module=__name__,
    signature="(loss, groups)",
    cases=_loss_cases,
    on_rank=_loss_on_rank,
    own={"losses": _of_its_replica},
    groups=groups_of_mesh,
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
    contract=Contract(
        takes="as `loss` a float64 tensor of no dimensions, below 0 as well, or None",
        gives="the result is a number or a tensor of one",
        sends="a rank sends a few numbers, at most 400 bytes",
    ),
)
