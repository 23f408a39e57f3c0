"""What the exercises coordinates_of_rank and groups_along share."""

import random

from course_lib.checks.exercise import Case

from ._axes import (
    drawn,
    named,
)

CUBE = {"pipeline": 2, "data": 2, "tensor": 2}


def cases(rng: random.Random) -> list[Case]:
    meshes = [CUBE, {"pipeline": 1, "data": 3, "tensor": 2}, drawn(rng), drawn(rng)]
    return [Case(1, named(sizes), {"sizes": sizes}) for sizes in meshes]
