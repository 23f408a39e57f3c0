"""What a layer of experts sends.

expert_traffic(tokens, hidden, k, n, element_size) -> bytes that each rank sends in one layer
    Forward and backward, with `tokens` tokens on each of n ranks that share the experts, where
    every rank is chosen equally often: an all-to-all there, one back, and the same for gradients.
"""

import math
import random
from typing import Any

from course_lib.checks import byte_formulas
from course_lib.checks.call_answer import plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation


def _cases(rng: random.Random) -> list[Case]:
    sizes = [(6, 4, 2, 3, 4), (4096, 7168, 8, 64, 2), (8, 16, 1, 1, 4)]
    sizes += [
        (rng.randint(2, 64), 8 * rng.randint(1, 64), rng.randint(1, 4), n, e)
        for n, e in ((2, 4), (5, 2), (8, 8))
    ]
    return [
        Case(1, f"{t} tokens, h = {h}, k = {k}, n = {n}, {e} bytes per element", {"size": size})
        for size in sizes
        for t, h, k, n, e in [size]
    ]


def _on_rank(answer: Any, case: Case) -> Any:
    return plain(answer(*case.data["size"]))


def _judge(case: Case, observation: Observation) -> Finding | None:
    t, h, k, n, e = case.data["size"]
    want = 4 * t * k * h * (n - 1) / n * e
    causes = [
        (0, "n > 1 ranks do send something"),
        (want / e, "these are elements: each has `element_size` bytes"),
        (
            want / 2,
            "this is half of it: there and back, forward and backward, are four all-to-alls",
        ),
        (want / 4, "this is one all-to-all: there are four, there and back, forward and backward"),
        (want / k, "a token goes to each of its k experts, so there are tokens * k rows"),
        (4 * t * k * h * e, "a share 1/n of the rows is for the rank itself, and not sent"),
        (want * 2, "an all-to-all sends a row once: the factor 2 is an all-reduce's"),
        (want * n, "this is what all ranks send together: this asks for what each one sends"),
        (
            4 * (t * k // n) * (n - 1) * h * e,
            "// leaves out what does not divide: / is the division that keeps it",
        ),
        (math.floor(want), "the result is a number with what is behind the point"),
        (round(want / e) * e, "the result is a number with what is behind the point"),
        (-want, "the sign is wrong: (n-1)/n, not (1-n)/n"),
    ]
    rule = "count the rows that leave a rank, and how often in a step"
    return byte_formulas.answered(observation.values[0], want, causes, rule)


EXERCISE = Exercise(
    module=__name__,
    signature="(tokens, hidden, k, n, element_size)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        How many rows does a rank hand to the all-to-all? How many of them are for other ranks, if
        all are chosen equally often? And how many all-to-alls are there, forward and backward?
        """,
        """
        tokens * k rows of `hidden` elements, (n-1)/n of which leave the rank. Two all-to-alls
        forward, dispatch and combine; backward the gradient of each.
        """,
        """
        return 4 * tokens * k * hidden * (n - 1) / n * element_size.
        """,
    ),
    passed="4kTh(n-1)/n elements per layer, however many experts there are",
    contract=Contract(
        takes="whole numbers",
        gives="the result is a number, even where n does not divide the rows",
        allowed=frozenset(),
    ),
)
