"""What the comparison accepts, and what it reads from a tensor that is wrong."""

import random
from collections import OrderedDict, defaultdict
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy
import pytest
import torch

from course_lib.checks import case_inputs, compare_tensors, reference
from course_lib.checks.call_answer import plain

THREE = dict(enumerate(case_inputs.by_powers_of_ten(3, 6)))  # sum: 111, 222, ..., 666
SUM = reference.total(THREE)


def likely(got, want=SUM, rank=0, lookalikes=None) -> str:
    finding = compare_tensors.mismatch(got, want, rank, lookalikes)
    assert finding is not None
    return finding.likely


@pytest.mark.parametrize(
    ("got", "says"),
    [
        (None, "your function returned nothing: is a `return` missing at the end?"),
        ([1, 2], "this is a list, not a tensor"),
        (
            torch.zeros(6, dtype=torch.int64),
            "all zeros, as if nothing had been written into the result",
        ),
        (SUM.value * 3, "exactly 3 times the reference: something is added more than once"),
        (SUM.value * 2, "exactly twice the reference: something is added more than once"),
        (-SUM.value, "the sign is wrong"),
        (THREE[0], "this is still the rank's own input, with nothing added"),
        (
            THREE[2],
            "this is rank 2's input, with nothing added, or this is the largest of the ranks' "
            "values, and not their sum",
        ),
        (SUM.value - THREE[1], "the part of rank 1 is missing"),
        (SUM.value + THREE[2], "the part of rank 2 is counted twice"),
        (
            SUM.value + THREE[2] - THREE[0],
            "the part of rank 0 is missing, and the part of rank 2 is counted twice",
        ),
        (SUM.value.view(2, 3), "the shape is wrong"),
        (SUM.value.double(), "the dtype is wrong: give back the dtype that came in"),
        (SUM.value + 7, "the values differ"),
    ],
)
def test_what_a_wrong_sum_tells(got, says):
    assert likely(got) == says


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ([5], "only element 5 of 6 is wrong: the part of rank 1 is missing"),
        ([4, 5], "only elements 4 to 5 of 6 are wrong (the last ones): the part of rank 1 is"),
        ([1, 2], "only elements 1 to 2 of 6 are wrong: the part of rank 1 is missing"),
        ([0, 3], "2 of 6 elements are wrong: the part of rank 1 is missing"),
    ],
)
def test_where_it_is_wrong(wrong, says):
    got = SUM.value.clone()
    got[wrong] -= THREE[1][wrong]
    assert likely(got).startswith(says)


def test_a_different_cause_in_each_element_is_told_of_the_first():
    got = SUM.value.clone()
    got[0] -= THREE[0][0]
    got[1] -= THREE[1][1]
    expected = "only elements 0 to 1 of 6 are wrong; at element 0 the part of rank 0 is missing"
    assert likely(got) == expected


def test_half_of_a_sum_is_an_average_and_twice_an_average_is_a_sum():
    two = dict(enumerate(case_inputs.spread(random.Random(1), 2, 9)))
    summed, averaged = reference.total(two), reference.total(two, average=True)
    assert likely(two[0] / 2 + two[1] / 2, summed) == (
        "exactly half the reference: you averaged a sum"
    )
    assert likely(two[0] + two[1], averaged) == (
        "exactly twice the reference: you summed, and an average is expected"
    )


def test_the_evidence_stands_beside_the_cause():
    finding = compare_tensors.mismatch(THREE[1], SUM, 2)
    assert finding.rank == 2
    assert finding.expected == "[111, 222, 333, 444, 555, 666]"
    assert finding.got == "[10, 20, 30, 40, 50, 60]"
    long = reference.moved(torch.arange(100))
    finding = compare_tensors.mismatch(
        torch.arange(100).index_fill(0, torch.tensor(50), 7), long, 0
    )
    assert finding.expected == "elements 50 to 53: [50, 51, 52, 53]"
    assert finding.got == "elements 50 to 53: [7, 51, 52, 53]"


def test_lookalikes_are_named():
    chunks = {"rank 1's chunk": torch.tensor([333, 444])}
    assert likely(torch.tensor([333, 444]), SUM.flat(0, 2), lookalikes=chunks) == (
        "this is rank 1's chunk"
    )


# --------------------------------------------------------------------------------------------------
# Rounding: any order of addition is right, anything more is not
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("n", [1, 2, 4, 5, 8])
def test_sums_in_any_order_are_accepted(dtype, n):
    tensors = case_inputs.spread(random.Random(n), n, 1003, dtype)
    want = reference.total(dict(enumerate(tensors)))
    for order in (tensors, tensors[::-1], tensors[1:] + tensors[:1]):
        running = order[0].clone()
        for tensor in order[1:]:
            running += tensor
        assert compare_tensors.mismatch(running, want, 0) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_thousandth_too_much_is_rejected_where_the_dtype_can_tell(dtype):
    ones = dict(enumerate([torch.ones(7, dtype=dtype)] * 4))
    got = torch.full((7,), 4, dtype=dtype)
    assert compare_tensors.mismatch(got, reference.total(ones), 0) is None
    got[6] *= 1 + max(1e-3, 8 * torch.finfo(dtype).eps)
    assert "only element 6 of 7 is wrong" in likely(got, reference.total(ones))


def test_integers_and_moved_data_are_exact():
    big = {0: torch.tensor([2**62]), 1: torch.tensor([2**61 + 1])}
    assert (
        compare_tensors.mismatch(torch.tensor([2**62 + 2**61 + 1]), reference.total(big), 0) is None
    )
    assert compare_tensors.mismatch(torch.tensor([2**62 + 2**61]), reference.total(big), 0)
    moved = torch.tensor([1.0, 2.0])
    assert compare_tensors.mismatch(moved, reference.moved(moved), 0) is None
    assert compare_tensors.mismatch(moved + 1e-6, reference.moved(moved), 0)


def test_values_that_are_not_numbers_are_rejected():
    one = reference.moved(torch.tensor([1.0, 2.0]))
    assert "not finite" in likely(torch.tensor([1.0, float("nan")]), one)


def test_replicas_must_hold_the_same_bits():
    held = {0: torch.tensor([1.0, 2.0]), 2: torch.tensor([1.0, 2.0])}
    assert compare_tensors.ranks_differ(held) is None
    held[2] = torch.tensor([1.0, 2.0 + 2**-22])
    finding = compare_tensors.ranks_differ(held)
    assert finding.rank == 2
    assert "rank 2 and rank 0 do not hold the same bits" in finding.likely


# --------------------------------------------------------------------------------------------------
# Values that are right in another form
# --------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    first: int
    second: float


@pytest.mark.parametrize(
    ("given", "as_plain"),
    [
        (numpy.int64(3), 3),
        (numpy.float32(0.5), 0.5),
        (numpy.bool_(True), True),
        (numpy.array([[1, 2]]), [[1, 2]]),
        (Fraction(6, 2), 3),
        (Fraction(1, 4), 0.25),
        (Decimal("1.5"), 1.5),
        (Pair(1, numpy.float64(2.0)), (1, 2.0)),
        (OrderedDict(a=range(2)), {"a": [0, 1]}),
        (defaultdict(list, {1: (2,)}), {1: (2,)}),
    ],
    ids=repr,
)
def test_numbers_and_containers_of_other_libraries_are_plain_ones(given, as_plain):
    got = plain(given)
    assert (got, type(got)) == (as_plain, type(as_plain))


@pytest.mark.parametrize(
    ("got", "says"),
    [
        (torch.stack([*THREE.values()]).amax(0), "the largest of the ranks' values"),
        (torch.stack([*THREE.values()]).prod(0), "the product of the ranks' values"),
        (SUM.value.roll(2), "these are the right numbers, turned by 2"),
        (SUM.value.flip(0), "these are the right numbers, from the last to the first"),
        (SUM.value.view(2, 3).t().flatten(), "the right numbers, transposed (2 rows became"),
    ],
)
def test_known_mistakes_are_tried_on_the_very_input(got, says):
    assert says in likely(got)


def test_two_mistakes_that_give_the_same_are_both_named():
    looks = {"rank 1's chunk": SUM.value + 1, "the last chunk": SUM.value + 1}
    assert likely(SUM.value + 1, lookalikes=looks) == "this is rank 1's chunk, or the last chunk"


def test_numbers_that_would_print_alike_get_more_digits():
    want = reference.moved(torch.tensor([4.624889, 1.0], dtype=torch.float64))
    finding = compare_tensors.mismatch(want.value + 1e-9, want, 0)
    assert finding.expected != finding.got


def test_precision_that_was_lost_is_named():
    want = reference.moved(torch.tensor([1 / 3, 2 / 7], dtype=torch.float64))
    assert "the digits that float32 has" in likely(want.value.float().double(), want)


@pytest.mark.parametrize(
    ("dtype", "name"), [(torch.float64, "float64"), (torch.float32, "float32")]
)
def test_whole_numbers_that_went_through_a_float(dtype, name):
    big = dict(enumerate(case_inputs.spread(random.Random(3), 3, 5, torch.int64)))
    got = sum(tensor.to(dtype) for tensor in big.values()).to(torch.int64)
    said = f"right to the digits that {name} has: whole numbers went through that dtype"
    assert said in likely(got, reference.total(big))


def test_whole_numbers_of_a_sum_without_a_part():
    big = dict(enumerate(case_inputs.spread(random.Random(3), 3, 5, torch.int64)))
    assert "the part of rank 1 is missing" in likely(big[0] + big[2], reference.total(big))
