"""The coordinates of a rank.

coordinates_of_rank(rank, sizes) -> {axis: coordinate}
    `sizes` is {axis: number of ranks}, the outermost axis first; the last axis moves fastest.
"""

from collections.abc import Callable
from typing import Any

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import whole

from ._axes import (
    Sizes,
    coordinates,
    named,
    size,
)
from ._coordinates import cases


def _places_on_rank(answer: Callable, case: Case) -> Any:
    sizes = case.data["sizes"]
    return [plain(answer(rank, dict(sizes))) for rank in range(size(sizes))]


def _judge_coordinates(case: Case, observation: Observation) -> Finding | None:
    sizes = case.data["sizes"]
    want, got = coordinates(sizes), observation.values[0]
    for rank, (wanted, answered) in enumerate(zip(want, got, strict=True)):
        if not isinstance(answered, dict) or _whole(answered) != wanted:
            return Finding(
                _place_cause(answered, rank, sizes, got),
                input=f"rank {rank} of {named(sizes)}",
                expected=f"{wanted}",
                got=f"{answered}" if isinstance(answered, dict) else kind_of(answered),
            )
    return None


def _whole(answered: dict) -> dict:
    return {axis: whole(at) for axis, at in answered.items()}


def _place_cause(answered: Any, rank: int, sizes: Sizes, got: list) -> str:
    if not isinstance(answered, dict) or set(answered) != set(sizes):
        return "the answer is a dict with a coordinate for each axis of `sizes`"
    backwards = coordinates(dict(reversed(sizes.items())))
    if got == [{axis: coordinates[axis] for axis in sizes} for coordinates in backwards]:
        return (
            "this has the first axis innermost, so that neighbours in rank differ there: the last "
            "axis is the one that moves fastest"
        )
    if any(at is None or at >= sizes[axis] for axis, at in _whole(answered).items()):
        return "a coordinate on an axis is a whole number below the size of that axis"
    if got == [{axis: rank % n for axis, n in sizes.items()} for rank in range(size(sizes))]:
        return "after taking rank % size on one axis, go on with rank // size on the next"
    taken = [got.index(coordinates) for coordinates in got]
    if taken != list(range(len(taken))):
        again = next(i for i, first in enumerate(taken) if first != i)
        return f"ranks {taken[again]} and {again} would have the same coordinates"
    return (
        "count on paper: the last axis goes 0, 1, ... and starts again; then the one before moves"
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(rank, sizes)",
    cases=cases,
    on_rank=_places_on_rank,
    judge=_judge_coordinates,
    hints=(
        """
        It works like a clock: seconds, minutes, hours. Which axis is the seconds?
        """,
        """
        Go through the axes from the last to the first. On each, `rank % size` is the coordinate,
        and `rank // size` is what is left for the axes before it.
        """,
        """
        for axis in reversed(sizes): rank, coordinate = divmod(rank, sizes[axis]).
        Collect the coordinates in a dict and return it.
        """,
    ),
    passed="every rank of 5 meshes has coordinates of its own",
    contract=Contract(takes="a mesh of any number of axes, with any names", allowed=frozenset()),
)
