"""Known answers to groups_along."""

import itertools
import math

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong

from ._common import coordinates


@right
def groups_along(axis, sizes):
    """A tensor of ranks in the shape of the mesh, with the axis moved to the end."""
    mesh = torch.arange(math.prod(sizes.values())).view(*sizes.values())
    return mesh.movedim(list(sizes).index(axis), -1).reshape(-1, sizes[axis]).tolist()


def grouped(sizes, key):
    found = {}
    for rank in range(math.prod(sizes.values())):
        found.setdefault(key(coordinates(rank, sizes)), []).append(rank)
    return list(found.values())


def without(axis):
    return lambda coordinates: tuple(p for a, p in sorted(coordinates.items()) if a != axis)


@wrong(says="have the same coordinate on")
def ranks_of_one_place(axis, sizes):
    return grouped(sizes, lambda coordinates: coordinates[axis])


@wrong(says="these are the groups along")
def always_the_last_axis(axis, sizes):
    return grouped(sizes, without(list(sizes)[-1]))


@wrong(says="neighbours in rank are a group on the last axis only")
def neighbours_in_rank(axis, sizes):
    n, world = sizes[axis], math.prod(sizes.values())
    if axis == list(sizes)[-1]:
        return grouped(sizes, without(axis))
    return [list(range(i, i + n)) for i in range(0, world, n)] if n != 2 else _far(axis, sizes)


def _far(axis, sizes):
    return grouped(sizes, without(axis))


@wrong(says="every rank is in exactly one group")
def only_the_group_of_rank_0(axis, sizes):
    return grouped(sizes, without(axis))[:1]


@wrong(says="in the order of the")
def groups_backwards(axis, sizes):
    return [group[::-1] for group in grouped(sizes, without(axis))]


@wrong(says="a list of groups, each a list of ranks")
def one_flat_list(axis, sizes):
    return grouped(sizes, without(axis))[0]


@right
def by_what_the_others_have(axis, sizes):
    return grouped(sizes, without(axis))


@right
def by_strides(axis, sizes):
    """A group begins where the coordinate is 0, and goes on in steps."""
    axes = list(sizes)
    step = math.prod(sizes[later] for later in axes[axes.index(axis) + 1 :])
    first = [r for r in range(math.prod(sizes.values())) if r // step % sizes[axis] == 0]
    return tuple(range(r, r + step * sizes[axis], step) for r in first)


@right
def rows_of_an_array(axis, sizes):
    mesh = np.arange(math.prod(sizes.values())).reshape(list(sizes.values()))
    return np.stack(np.split(mesh, sizes[axis], list(sizes).index(axis)), -1).reshape(
        -1, sizes[axis]
    )


@right
def sorted_into_groups(axis, sizes):
    ranks, other = range(math.prod(sizes.values())), without(axis)

    def key(rank):
        return other(coordinates(rank, sizes))

    return [list(g) for _, g in itertools.groupby(sorted(ranks, key=key), key=key)]


@wrong(says="values to unpack")
def of_three_axes(axis, sizes):
    first, second, third = sizes.values()
    mesh = torch.arange(first * second * third).view(first, second, third)
    return mesh.movedim(list(sizes).index(axis), -1).reshape(-1, sizes[axis]).tolist()
