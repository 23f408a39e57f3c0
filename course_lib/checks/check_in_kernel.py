"""A check in ranks of this kernel."""

import random
from collections.abc import Callable

from . import hash_order_dependence
from .examine import Collect, examine, examine_briefly
from .exercise import Exercise
from .run_answer import collect_job
from .verdict import Verdict


def run_check(
    exercise: Exercise, answer: Callable, rng: random.Random, timeout: float | None = None
) -> Verdict:
    """Run `answer` on the cases that `rng` draws; the verdict is on the first one that fails.

    timeout: seconds for the ranks of each run, instead of the exercise's own.
    """
    return examine(
        exercise, rng, _collect(answer, timeout), hash_order_dependence.line_of_function(answer)
    )


def run_briefly(
    exercise: Exercise, answer: Callable, rng: random.Random, timeout: float | None = None
) -> Verdict:
    """As `run_check`, but whatever fails first is told, which takes less time."""
    hashing = hash_order_dependence.line_of_function(answer)
    return examine_briefly(exercise, rng, _collect(answer, timeout), hashing)


def _collect(answer: Callable, timeout: float | None) -> Collect:
    return lambda jobs: (collect_job(answer, job, timeout) for job in jobs)
