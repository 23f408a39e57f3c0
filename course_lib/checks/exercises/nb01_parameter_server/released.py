"""Bounded delay: which of the workers that wait may start their next task.

released(finished, waiting, bound) -> those of `waiting` that may start, in any order
    finished[w] is the number of tasks that worker w has finished; waiting are the workers that ask
    for their next task (the others compute). A worker may start while it is ahead of the slowest of
    all workers by `bound` tasks at most. bound 0 is sequential, math.inf eventual.
"""

import math
import random
from collections.abc import Callable
from typing import Any

from course_lib.checks.call_answer import plain, shown
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

RUNS = 200


_CALLS = 30


Question = tuple[list[int], list[int], float]  # finished, waiting, bound


def _cases(rng: random.Random) -> list[Case]:
    by_hand: list[Question] = [
        ([0, 0, 0], [0, 1, 2], 0),
        ([9, 0, 5], [0, 2], 0),
        ([8, 0, 0, 0], [0, 1], 6),
        ([3, 1, 1], [0, 2], 1),
        ([1, 0, 1], [0, 2], 0),
        ([1, 1, 1], [1], 0),
        ([3, 1, 2], [0, 2], 1),
        ([3, 1, 2], [0, 1], 2),
        ([3, 1, 2], [0, 1], 1),
        ([3, 1, 2], [0, 2], 1.5),
        ([9, 0], [0], math.inf),
        ([5], [0], 0),
        ([2, 2], [], 3),
    ]
    return [
        Case(1, "questions by hand", {"questions": by_hand}),
        Case(1, f"{RUNS} random runs", {"seed": rng.getrandbits(32)}),
    ]


def _on_rank(answer: Callable, case: Case) -> Any:
    """Every question that was asked, with what was answered."""
    if "questions" in case.data:
        return [_ask(answer, *question) for question in case.data["questions"]]
    rng, log = random.Random(case.data["seed"]), []
    for _ in range(RUNS):
        log += _run(answer, rng)
    return log


def _ask(answer: Callable, finished: list[int], waiting: list[int], bound: float) -> tuple:
    value = answer(list(finished), list(waiting), bound)
    if isinstance(value, set | frozenset | tuple):
        value = sorted(value)
    return finished, waiting, bound, plain(value)


def _run(answer: Callable, rng: random.Random) -> list[tuple]:
    """Workers of very different speeds, let go as `answer` says."""
    workers, bound = rng.randint(1, 5), rng.choice([0, 0, 1, 2, 4, math.inf])
    speeds = [10 ** rng.uniform(0, 2) for _ in range(workers)]
    finished, waiting, log = [0] * workers, list(range(workers)), []
    for _ in range(_CALLS):
        log.append(_ask(answer, list(finished), list(waiting), bound))
        free = log[-1][3]
        free = free if isinstance(free, list) else []
        waiting = [worker for worker in waiting if worker not in free]
        running = [worker for worker in range(workers) if worker not in waiting]
        if not running:
            break
        done = rng.choices(running, [speeds[worker] for worker in running])[0]
        finished[done] += 1
        waiting = sorted([*waiting, done])
    return log


def _judge(case: Case, observation: Observation) -> Finding | None:
    for finished, waiting, bound, got in observation.values[0]:
        question = finished, waiting, bound
        want = reference(*question)
        if not _is_list_of_workers(got):
            return Finding(
                "a list of workers is expected, empty if none may start",
                expected=f"{want}",
                got=shown(got),
            )
        if sorted(set(got)) != want:
            return Finding(
                _cause(observation.values[0], question, sorted(set(got)), want),
                input=f"finished {finished}, waiting {waiting}, bound {bound}",
                expected=f"{want}",
                got=f"{got}",
            )
    return None


def _is_list_of_workers(value: Any) -> bool:
    return isinstance(value, list) and all(type(worker) is int for worker in value)


def reference(finished: list[int], waiting: list[int], bound: float) -> list[int]:
    return [w for w in sorted(waiting) if finished[w] - min(finished) <= bound]


Rule = Callable[[list[int], list[int], float], list[int]]

_MISTAKES: dict[str, Rule] = {
    "a lead of exactly the bound is allowed": lambda finished, waiting, bound: [
        w for w in waiting if finished[w] - min(finished) < bound
    ],
    "this lets a worker be one task further ahead than the bound": (
        lambda finished, waiting, bound: reference(finished, waiting, bound + 1)
    ),
    "the slowest may be one that is computing: look at all workers, not at those that wait": (
        lambda finished, waiting, bound: [
            w for w in waiting if finished[w] - min(finished[v] for v in waiting) <= bound
        ]
    ),
    "the slowest may be one that waits: look at all workers, not at those that compute": (
        lambda finished, waiting, bound: [
            w
            for w in waiting
            if finished[w] - min(_computing(finished, waiting) or finished) <= bound
        ]
    ),
    "finished[w] is that of worker w: this goes by the place in `waiting`": (
        lambda finished, waiting, bound: [
            w for i, w in enumerate(waiting) if finished[i] - min(finished) <= bound
        ]
    ),
    "this compares with the fastest: it is the lead over the slowest that is bounded": (
        lambda finished, waiting, bound: [
            w for w in waiting if max(finished) - finished[w] <= bound
        ]
    ),
    "this compares with the average, which one very slow worker hardly moves": (
        lambda finished, waiting, bound: [
            w for w in waiting if finished[w] - sum(finished) / len(finished) <= bound
        ]
    ),
    "this holds everyone back as long as one is too far ahead: the slow ones have to go on": (
        lambda finished, waiting, bound: waiting if max(finished) - min(finished) <= bound else []
    ),
    "this lets everyone who waits start, whatever the bound": (
        lambda finished, waiting, bound: waiting
    ),
}


def _computing(finished: list[int], waiting: list[int]) -> list[int]:
    return [count for worker, count in enumerate(finished) if worker not in waiting]


def _cause(answers: list[tuple], question: Question, got: list[int], want: list[int]) -> str:
    """The mistake that gives this answer, and all others if there is such a one."""
    if set(got) - set(question[1]):
        return "only workers that wait can start; the others are computing"
    fits = [cause for cause, rule in _MISTAKES.items() if sorted(rule(*question)) == got]
    lists = [answer for answer in answers if _is_list_of_workers(answer[-1])]
    for cause in fits:
        if all(sorted(_MISTAKES[cause](*asked)) == sorted(found) for *asked, found in lists):
            return cause
    if fits:
        return fits[0]
    if set(got) < set(want):
        return "some could start and are held back: one call names all that may start now"
    return "a worker may start while it leads the slowest by at most the bound"


EXERCISE = Exercise(
    module=__name__,
    signature="(finished, waiting, bound)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        How far ahead is worker w? By what it has finished, less what the slowest of all has
        finished.
        """,
        """
        slowest = min(finished). Count all workers, the ones that are computing too. A lead equal to
        the bound is still allowed.
        """,
        """
        [w for w in waiting if finished[w] - min(finished) <= bound]
        """,
    ),
    passed=f"in {RUNS} random runs nobody leads by more than the bound or waits without need",
    contract=Contract(
        any_order=True,
        allowed=frozenset(),
    ),
)
