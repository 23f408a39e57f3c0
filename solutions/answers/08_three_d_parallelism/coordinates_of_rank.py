"""Known answers to coordinates_of_rank."""

import math

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
