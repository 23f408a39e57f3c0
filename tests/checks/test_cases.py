"""Whatever is drawn, a case shows what it is there for, and a right answer is right."""

import itertools
from typing import Any

import pytest
import torch

from course_lib.checks import compare_tensors, reference, seeds, tolerance
from course_lib.checks.exercise import Case, Exercise
from course_lib.checks.laws._snapshot import leaves
from course_lib.checks.rank_inputs import share
from course_lib.checks.registry import all_exercises

EXERCISES = all_exercises()
DRAWS = 20


def numbers(value: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors of floating-point numbers in some data, by where they are.

    Not a number is what a rank gets of what is not its own.
    """
    found = [(where, leaf) for where, leaf in leaves(value) if isinstance(leaf, torch.Tensor)]
    return [(w, t) for w, t in found if t.is_floating_point() and not t.isnan().all()]


def accidents(exercise: Exercise, case: Case) -> set[str]:
    """What hides mistakes: numbers that are all zero, and ranks whose own numbers are alike."""
    zeros = {f"{where} is zero" for where, tensor in numbers(case.data) if not tensor.any()}
    alike = set()
    for entry in exercise.own:
        ranks = range(case.world_size)
        parts = [[t for _, t in numbers(share(exercise, case, r).data[entry])] for r in ranks]
        alike |= {
            f"{entry} of ranks {other} and {rank} is the same"
            for other, rank in itertools.combinations(ranks, 2)
            if parts[rank] and len(parts[rank]) == len(parts[other])
            if all(map(equal, parts[rank], parts[other]))
        }
    return zeros | alike


def equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.nan_to_num(nan=0.5), other.nan_to_num(nan=0.5))


@pytest.mark.parametrize("name", EXERCISES)
def test_no_draw_of_a_case_hides_what_others_show(name):
    exercise, rng = EXERCISES[name], seeds.hidden(name, "many draws")
    draws = [exercise.cases(rng) for _ in range(DRAWS)]
    for drawn in draws[1:]:
        assert [case.world_size for case in drawn] == [case.world_size for case in draws[0]]
    for same in zip(*draws, strict=True):
        found = [accidents(exercise, case) for case in same]
        # What all draws have in common is meant: an equal start, a rank without anything.
        assert set.union(*found) == set.intersection(*found), same[0].label


def test_accidents_are_seen():
    planted = Case(2, "zeros on two ranks", {"inputs": [torch.zeros(2), torch.zeros(2)]})
    assert accidents(EXERCISES["ring_all_gather"], planted) == {
        "['inputs'][0] is zero",
        "['inputs'][1] is zero",
        "inputs of ranks 0 and 1 is the same",
    }


@pytest.mark.parametrize(("value", "off"), [(0.0, 1e-16), (0.0, 3e-10), (1e6, 1e-4)])
def test_what_is_left_where_numbers_cancel_may_be_off_by_their_rounding(value, off):
    wanted = torch.full((2, 3), value, dtype=torch.float64)
    assert compare_tensors.computed(wanted + off, wanted, 0) is None
    assert compare_tensors.computed(wanted + 100 * max(off, 1e-10), wanted, 0) is not None
    assert compare_tensors.alike(wanted + off, wanted)


def test_the_scale_of_what_cancels_is_that_of_what_went_in():
    small = torch.tensor([0.25, 0.125], dtype=torch.float64)
    assert reference.computed(small, 2**-20).tolerance.tolist() == [2**-20] * 2
    assert reference.computed(small, 2**-20, scale=16).tolerance.tolist() == [2**-16] * 2
    assert reference.computed(small, 2**-20, scale=0).tolerance.tolist() == [2**-22] * 2


def test_the_largest_of_no_finite_element_is_0():
    assert tolerance.largest([torch.empty(0), torch.tensor([float("-inf")])]) == 0.0
    assert tolerance.largest([torch.tensor([-3.0]), torch.tensor([2.0, float("inf")])]) == 3.0
