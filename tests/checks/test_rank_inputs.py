"""A rank is sent its own part of a case: in each exercise with messages, something is withheld."""

import random
from typing import Any

import pytest
import torch

from course_lib.checks import rank_inputs
from course_lib.checks.exercise import Case
from course_lib.checks.laws import messages_depend_on_inputs
from course_lib.checks.laws._snapshot import difference, frozen
from course_lib.checks.registry import all_exercises

TALKING = {
    name: exercise
    for name, exercise in all_exercises().items()
    if exercise.contract.allowed != frozenset()
    and any(case.world_size > 1 for case in exercise.cases(random.Random(1)))
}


def numbers(value: Any) -> int:
    """How many numbers a value holds, without what stands in the place of something withheld."""
    if isinstance(value, torch.Tensor):
        return int((value.isfinite() & (value != 0)).sum())
    if isinstance(value, list | tuple):
        return sum(map(numbers, value))
    if isinstance(value, dict):
        return sum(map(numbers, value.values()))
    return isinstance(value, int | float) and not isinstance(value, bool)


@pytest.mark.parametrize("name", TALKING)
def test_what_is_to_come_by_messages_is_withheld(name):
    exercise, withheld = TALKING[name], set()
    assert exercise.own
    for case in exercise.cases(random.Random(1)):
        parts = [rank_inputs.share(exercise, case, rank).data for rank in range(case.world_size)]
        for entry in exercise.own.keys() & case.data.keys():
            most = numbers(case.data[entry])
            told = [numbers(part[entry]) for part in parts]
            assert sum(told) >= most  # somebody has it
            if min(told) < most:
                withheld.add(entry)
    assert withheld == set(exercise.own)


def test_the_cases_within_a_case_are_cut_up_as_well():
    """As the law has them that compares two inputs."""
    exercise = TALKING["ring_all_reduce"]
    (varied,) = messages_depend_on_inputs.variations(exercise)
    (case,) = varied.cases(random.Random(1))
    for each in rank_inputs.share(varied, case, 1).data["both"]:
        assert [tensor is None for tensor in each.data["inputs"]] == [
            rank != 1 for rank in range(case.world_size)
        ]


X = torch.arange(1.0, 13).reshape(4, 3)


@pytest.mark.parametrize(
    ("cut", "value", "want"),
    [
        (rank_inputs.by_rank, [1, 2], [None, 2]),
        (rank_inputs.by_worker, ["a"], ["a"]),
        (rank_inputs.in_turn, [1, 2, 3, 4], [None, None, 3, 4]),
        (rank_inputs.each(rank_inputs.by_rank), [[1, 2], [3, 4]], [[None, 2], [None, 4]]),
        (rank_inputs.only(lambda case: 0), [X], [torch.full_like(X, torch.nan)]),
        (rank_inputs.along(0), X, torch.cat([torch.full((2, 3), torch.nan), X[2:]])),
        (rank_inputs.along(1), X, X),  # three columns have no halves
        (
            rank_inputs.rows(lambda case, rank: slice(3, 4)),
            X.long(),
            torch.cat([0 * X[:3], X[3:]]).long(),
        ),
    ],
)
def test_ways_to_cut(cut, value, want):
    assert difference(frozen(want), cut(value, Case(2, "", {}), 1)) == ""


def test_a_group_has_entries_for_its_members_only():
    case = Case(4, "", {"members": [3, 1], "inputs": ["three", "one"]})
    assert rank_inputs.by_rank(case.data["inputs"], case, 1) == [None, "one"]
    assert rank_inputs.by_rank(case.data["inputs"], case, 2) == [None, None]
