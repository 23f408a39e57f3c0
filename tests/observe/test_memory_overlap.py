"""Which bytes a tensor occupies: compared with a list of the address of every element."""

import itertools
import random

import torch

from course_lib.observe.memory_overlap import ByteRange, overlaps


def addresses(tensor: torch.Tensor) -> set[int]:
    """Every byte of every element, one by one."""
    found = set()
    for index in itertools.product(*map(range, tensor.shape)):
        offset = sum(i * stride for i, stride in zip(index, tensor.stride(), strict=True))
        first = tensor.data_ptr() + offset * tensor.element_size()
        found.update(range(first, first + tensor.element_size()))
    return found


def test_agrees_with_a_list_of_all_addresses():
    rng = random.Random(0)
    base = torch.zeros(240, dtype=torch.int16)
    both = set()
    for _ in range(300):
        dims = rng.randint(1, 3)
        size = [rng.randint(1, 4) for _ in range(dims)]
        stride = [rng.choice([0, 1, 2, 3, 5, 12, 20]) for _ in range(dims)]
        tensor = base.as_strided(size, stride, rng.randint(0, 60))
        start = base.data_ptr() + rng.randint(0, 200)
        stop = start + rng.randint(1, 24)
        expected = not addresses(tensor).isdisjoint(range(start, stop))
        assert overlaps(tensor, start, stop) == expected, (size, stride)
        both.add(expected)
    assert both == {True, False}


def test_rows_between_rows_do_not_meet():
    matrix = torch.zeros(6, 5)
    row = ByteRange.of(matrix[3])
    assert not row.meets(matrix[::2])
    assert row.meets(matrix[1::2])
    assert row.meets(matrix[:, 4])
    assert not row.meets(matrix[:3])


def test_memory_given_back_meets_nothing():
    tensor = torch.zeros(1000)
    memory, view = ByteRange.of(tensor), tensor[2:4]
    assert memory.meets(view)
    elsewhere = torch.zeros(1000)
    del tensor, view
    assert not memory.alive()
    assert not overlaps(elsewhere, memory.start, memory.stop) or not memory.meets(elsewhere)
