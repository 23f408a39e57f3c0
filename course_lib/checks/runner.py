"""Both stages of a check, one case after the other, up to the first that goes wrong."""

import random
from collections.abc import Callable

from .collecting import collect_case
from .exercise import Exercise
from .judging import judge_case
from .verdict import Failure, Verdict


def run_check(exercise: Exercise, answer: Callable, rng: random.Random) -> Verdict:
    """Run `answer` on the cases that `rng` draws; the verdict is on the first one that fails."""
    cases = exercise.cases(rng)
    for case in cases:
        outcome = collect_case(exercise, answer, case)
        if finding := judge_case(exercise, case, outcome):
            return Verdict(exercise, cases, Failure(case, finding, outcome))
    return Verdict(exercise, cases)
