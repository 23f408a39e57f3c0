"""What the exercises megatron_f and megatron_g share."""

import random

from course_lib.checks.case_inputs import normal
from course_lib.checks.exercise import Case
from course_lib.text import counted


def conjugate_cases(rng: random.Random) -> list[Case]:
    cases = []
    for ranks, shape in ((2, (3,)), (3, (2, 5)), (4, (1, 3, 2)), (1, (4,)), (2, ())):
        inputs = normal(rng, *[shape] * ranks)
        weights = normal(rng, *[shape] * ranks)
        label = f"a tensor of shape {shape} on {counted(ranks, 'rank')}"
        cases.append(Case(ranks, label, {"inputs": inputs, "weights": weights}))
    return cases
