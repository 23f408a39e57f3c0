"""Which ranks form a group along an axis.

groups_along(axis, sizes) -> list of groups, each a list of ranks
    `sizes` is {axis: number of ranks}, the outermost axis first; the last axis moves fastest.
"""

from collections.abc import Callable
from typing import Any

import torch

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from ._axes import (
    Sizes,
    coordinates,
    groups,
    named,
    size,
)
from ._coordinates import cases


def _groups_on_rank(answer: Callable, case: Case) -> Any:
    sizes = case.data["sizes"]
    return {axis: plain(answer(axis, dict(sizes))) for axis in sizes}


def _judge_groups(case: Case, observation: Observation) -> Finding | None:
    sizes = case.data["sizes"]
    for axis, answered in observation.values[0].items():
        want = groups(axis, sizes)
        got = _as_lists(answered)
        if got is None or sorted(got) != sorted(want):
            return Finding(
                _groups_cause(got, axis, sizes),
                input=f"{axis} in {named(sizes)}",
                expected=_shown(want),
                got=kind_of(answered) if got is None else _shown(got),
            )
    return None


def _as_lists(answered: Any) -> list[list[int]] | None:
    if not isinstance(answered, list | tuple):
        return None
    rows = [g.tolist() if isinstance(g, torch.Tensor) else g for g in answered]
    if not all(isinstance(group, list | tuple) for group in rows):
        return None
    return [list(group) for group in rows]


def _groups_cause(got: list[list[int]] | None, axis: str, sizes: Sizes) -> str:
    if got is None:
        return "the answer is a list of groups, each a list of ranks"
    ranks = sorted(rank for group in got for rank in group)
    others = [other for other in sizes if sizes[other] > 1 and other != axis]
    for other in others:
        if sorted(got) == sorted(groups(other, sizes)):
            return f"these are the groups along {other}: the ranks of a group differ only on {axis}"
    if sorted(map(sorted, got)) == sorted(groups(axis, sizes)):
        return f"right ranks, wrong order: in a group they stand in the order of the {axis} axis"
    slices: dict[int, list[int]] = {}
    for rank, at in enumerate(coordinates(sizes)):
        slices.setdefault(at[axis], []).append(rank)
    if sorted(got) == sorted(slices.values()):
        return (
            f"these ranks have the same coordinate on {axis}; a group along {axis} has one rank "
            "from each coordinate, and the same ones on the other axes"
        )
    if ranks != list(range(size(sizes))):
        return f"every rank is in exactly one group along an axis, {size(sizes)} ranks in all"
    step = sizes[axis]
    if got == [list(range(i, i + step)) for i in range(0, size(sizes), step)]:
        return (
            "neighbours in rank are a group on the last axis only; on another one, ranks stand as "
            "far apart as the axes after it have ranks"
        )
    return (
        f"two ranks are in one group along {axis} if their coordinates differ there and nowhere "
        "else"
    )


def _shown(found: list[list[int]]) -> str:
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""
    return ", ".join(map(str, found[:4])) + more


EXERCISE = Exercise(
    module=__name__,
    signature="(axis, sizes)",
    cases=cases,
    on_rank=_groups_on_rank,
    judge=_judge_groups,
    hints=(
        """
        Two ranks are in one group if their coordinates differ on this axis and on no other. What do
        all members of a group have in common?
        """,
        """
        Walk over all ranks. Take the coordinates of each, leave out the axis, and use what remains
        as the key of a dict of lists.
        """,
        """
        key = tuple(p for a, p in coordinates_of_rank(rank, sizes).items() if a != axis);
        found.setdefault(key, []).append(rank). The answer is list(found.values()).
        """,
    ),
    passed="every rank is in one group along each axis of 5 meshes",
    contract=Contract(takes="a mesh of any number of axes, with any names", allowed=frozenset()),
)
