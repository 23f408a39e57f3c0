"""Meshes as these exercises see them: sizes by axis, the outermost axis first.

Written apart from the course's own mesh, whose answers it judges.
"""

import itertools
import math
import random

AXES = ("pipeline", "data", "tensor")
Sizes = dict[str, int]


def size(sizes: Sizes) -> int:
    """Ranks of the mesh."""
    return math.prod(sizes.values())


def coordinates(sizes: Sizes) -> list[Sizes]:
    """The coordinates of every rank; the last axis moves fastest."""
    each = itertools.product(*(range(n) for n in sizes.values()))
    return [dict(zip(sizes, at, strict=True)) for at in each]


def groups(axis: str, sizes: Sizes) -> list[list[int]]:
    """Ranks that differ only on `axis`, group by group."""
    found: dict[tuple, list[int]] = {}
    for rank, at in enumerate(coordinates(sizes)):
        found.setdefault(tuple(v for k, v in at.items() if k != axis), []).append(rank)
    return list(found.values())


def named(sizes: Sizes) -> str:
    """ "pipeline 2 x data 2 x tensor 2"."""
    return " x ".join(f"{axis} {n}" for axis, n in sizes.items())


def drawn(rng: random.Random) -> Sizes:
    """A mesh of some ranks, its axes in any order, sizes that are no powers of two among them."""
    order = rng.sample(AXES, 3)
    return dict(zip(order, rng.sample((2, 3, 4, 5), 3), strict=True))
