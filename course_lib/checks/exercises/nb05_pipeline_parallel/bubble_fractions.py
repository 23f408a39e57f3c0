"""A number of a pipeline: how long it idles.

bubble_fractions(p, m) -> (of all the time, of the working time)
"""

import random
from typing import Any

from course_lib.checks.call_answer import plain, shown
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import close, numbers
from course_lib.checks.tolerance import EXACT
from course_lib.text import counted


def _bubble_cases(rng: random.Random) -> list[Case]:
    # With 4 and 8 each mistake gives numbers of its own, so that it can be named.
    sizes = [(4, 8), (4, 1), (1, 5), (8, 32)]
    sizes += [(rng.randint(2, 64), rng.randint(1, 256)) for _ in range(3)]
    return [Case(1, f"p = {p}, m = {m}", {"size": (p, m)}) for p, m in sizes]


def _bubble_on_rank(answer: Any, case: Case) -> Any:
    return plain(answer(*case.data["size"]))


def _judge_bubble(case: Case, observation: Observation) -> Finding | None:
    p, m = case.data["size"]
    answered = observation.values[0]
    got = numbers(answered, 2)
    if got is None:
        return Finding(
            "two numbers are expected, (of all the time, of the working time)",
            got=shown(answered),
        )
    total, ideal = (p - 1) / (m + p - 1), (p - 1) / m
    if close(got[0], total, EXACT) and close(got[1], ideal, EXACT):
        return None
    return Finding(
        _bubble_cause(got, p, m),
        expected=f"{total:.4f} of all the time, {ideal:.4f} of the working time",
        got=f"{got[0]:.4f} and {got[1]:.4f}",
    )


def _bubble_cause(got: list, p: int, m: int) -> str:
    def is_(of_total: float, of_ideal: float) -> bool:
        return close(got[0], of_total, EXACT) and close(got[1], of_ideal, EXACT)

    total, ideal = (p - 1) / (m + p - 1), (p - 1) / m
    causes = [
        (is_(ideal, total), "the two are swapped: the share of all the time comes first"),
        (is_(ideal, ideal), "both are shares of the working time: (p-1)/m can even exceed 1"),
        (is_(total, total), "both are shares of all the time"),
        (is_(100 * total, 100 * ideal), "these are per cent: give fractions"),
        (
            is_((p - 1) / p, p - 1),
            "this is the naive pipeline's, m = 1, whatever m is: microbatches make it smaller",
        ),
        (
            is_(p / (m + p), p / m),
            "a stage idles while p - 1 others fill and drain, not p of them",
        ),
        (is_(1 - total, 1 - ideal), "this is the busy share; the bubble is the rest"),
        (
            is_(2 * (p - 1) / (m + 2 * (p - 1)), 2 * (p - 1) / m),
            "a stage idles p - 1 steps, not 2(p-1): what it waits for at the beginning and at the "
            "end makes p - 1 together, since a step is a forward and a backward",
        ),
        (
            is_((p - 1) / m, (p - 1) / (p * m)) or is_((p - 1) / (m * p), ideal),
            "all the time is m + p - 1 steps, not m p: the stages work side by side",
        ),
    ]
    fits = [cause for applies, cause in causes if applies]
    if close(got[0], total, EXACT) and not fits:
        fits = ["the first number is right, and the second is a multiple of the working time"]
    elif close(got[1], ideal, EXACT) and not fits:
        fits = ["the second number is right, and the first is a share of all the time"]
    return "; or ".join(fits) or (
        f"the pipeline takes {counted(m + p - 1, 'step')} here, and a stage works in {m} of them"
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(p, m)",
    cases=_bubble_cases,
    on_rank=_bubble_on_rank,
    judge=_judge_bubble,
    hints=(
        """
        Take a forward and a backward of one microbatch as one step. How many steps does a stage
        work? How many steps pass from the first to the last of the whole pipeline?
        """,
        """
        Every stage works m steps. The last stage begins when the first microbatch has passed p - 1
        others, and the same time passes at the end, until the gradient is back. So it all takes m +
        p - 1 steps.
        """,
        """
        The idle steps of a stage are (m + p - 1) - m. Divide them by m + p - 1 for the share of all
        the time, and by m for the share of the working time.
        """,
    ),
    passed="(p-1)/(m+p-1) of all the time is (p-1)/m of the working time",
    contract=Contract(
        takes="p and m from 1 on",
        gives="the result is one pair of numbers, fractions and not per cent",
        allowed=frozenset(),
    ),
)
