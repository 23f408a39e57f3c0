"""What the exercises column_linear and row_linear share."""

import random

from course_lib.checks.case_inputs import normal
from course_lib.checks.exercise import Case
from course_lib.text import counted


def linear_cases(rng: random.Random) -> list[Case]:
    sizes = [(2, 3, 8, 6), (3, 1, 12, 6), (4, rng.randint(2, 6), 16, 12), (1, 2, 3, 5)]
    cases = []
    for ranks, batch, inputs, outputs in sizes:
        x, weight, bias, weights = normal(
            rng, (batch, inputs), (outputs, inputs), (outputs,), (batch, outputs)
        )
        label = f"a {inputs} x {outputs} matrix over {counted(ranks, 'rank')}"
        data = {"x": x, "weight": weight, "bias": bias, "weights": weights}
        cases.append(Case(ranks, label, data))
    return cases
