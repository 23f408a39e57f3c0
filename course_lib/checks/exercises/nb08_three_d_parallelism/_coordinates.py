"""What the exercises coordinates_of_rank and groups_along share."""

import random

from course_lib.checks.exercise import Case

from ._axes import (
    drawn,
    named,
)

CUBE = {"pipeline": 2, "data": 2, "tensor": 2}


def cases(rng: random.Random) -> list[Case]:
    more = [{"replica": 3, "shard": 2}, {**drawn(rng), "context": 2}]  # any axes, and any number
    meshes = [CUBE, {"pipeline": 1, "data": 3, "tensor": 2}, drawn(rng), *more]
    return [Case(1, named(sizes), {"sizes": sizes}) for sizes in meshes]
