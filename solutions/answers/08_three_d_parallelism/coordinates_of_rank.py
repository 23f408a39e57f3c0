"""Known answers to coordinates_of_rank."""

import itertools
import math
from collections import OrderedDict

import numpy as np

from course_lib.checks.known_answers import right, wrong

from ._common import coordinates


@right
def coordinates_of_rank(rank, sizes):
    axes, found = list(sizes), {}
    for number, axis in enumerate(axes):
        after = math.prod(sizes[later] for later in axes[number + 1 :])
        found[axis] = rank // after % sizes[axis]
    return found


@wrong(says="this has the first axis innermost")
def first_axis_moves_fastest(rank, sizes):
    found = {}
    for axis, size in sizes.items():
        rank, found[axis] = divmod(rank, size)
    return found


@wrong(says="go on with rank // size on the next")
def never_divides(rank, sizes):
    return {axis: rank % size for axis, size in sizes.items()}


@wrong(says="a dict with a coordinate for each axis")
def a_tuple_of_coordinates(rank, sizes):
    return tuple(coordinates(rank, sizes).values())


@wrong(says="a whole number below the size")
def no_remainder(rank, sizes):
    axes = list(sizes)
    return {a: rank // math.prod(sizes[b] for b in axes[i + 1 :]) for i, a in enumerate(axes)}


@wrong(says="would have the same coordinates")
def everybody_at_zero(rank, sizes):
    return dict.fromkeys(sizes, 0)


@wrong(says="the last axis goes 0, 1")
def the_cube_by_heart(rank, sizes):
    found = coordinates(rank, sizes)
    if list(sizes.values()) == [2, 2, 2]:
        return found
    turned = dict(zip(sizes, reversed(sizes.values()), strict=True))
    spread = list(coordinates(rank, turned).values())
    exact = dict(zip(sizes, reversed(spread), strict=True))
    return exact


@right
def as_numpy_unravels(rank, sizes):
    return dict(zip(sizes, np.unravel_index(rank, tuple(sizes.values())), strict=True))


@right
def entry_of_the_product(rank, sizes):
    every = itertools.product(*map(range, sizes.values()))
    return dict(zip(sizes, next(itertools.islice(every, rank, None)), strict=True))


@right
def by_taking_the_first_axis_off(rank, sizes):
    if not sizes:
        return {}
    (axis, _), *rest = sizes.items()
    at, rank = divmod(rank, math.prod(size for _, size in rest))
    return OrderedDict({axis: at, **by_taking_the_first_axis_off(rank, dict(rest))})


@right
def by_counting_up(rank, sizes):
    """As a clock goes: one more on the last axis, and carry."""
    found, axes = dict.fromkeys(sizes, 0), list(sizes)[::-1]
    for _ in range(rank):
        for axis in axes:
            found[axis] = (found[axis] + 1) % sizes[axis]
            if found[axis]:
                break
    return found


@wrong(says="values to unpack")
def of_three_axes(rank, sizes):
    first, second, third = sizes
    return {
        first: rank // (sizes[second] * sizes[third]),
        second: rank // sizes[third] % sizes[second],
        third: rank % sizes[third],
    }


@wrong(says="a whole number below the size")
def true_division(rank, sizes):
    return {axis: at / 1 for axis, at in coordinates(rank, sizes).items()}
