"""A whole check: which jobs are run, in which order, and which failure is told.

Cases of one world size go through the same ranks, one after the other and then once more with other
data: that is fast, and shows what an answer keeps from call to call. Where that goes wrong, the
cases are run again, each in ranks of its own, since the first that fails alone has the plainest
story. If none does, the story is that the function cannot be called twice.

How jobs are run is the caller's: in ranks of this kernel (`runner`), or in a sandbox.
"""

import contextlib
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

from course_lib.text import sentences

from . import traffic_limits
from .exercise import Breach, Case, Exercise, Finding
from .judging import judge_case, judge_trouble, told
from .laws import Law, all_laws
from .run_answer import Job, Outcome
from .shared_launches import Launch, launches
from .verdict import Failure, Verdict

Collect = Callable[[Sequence[Job]], Generator[Outcome, None, None]]
"""Runs jobs and gives the outcome of each, in order, as far as the caller wants to have them."""


def examine(exercise: Exercise, rng: random.Random, collect: Collect, hashing: str = "") -> Verdict:
    """The verdict on the answer that `collect` runs, on the cases that `rng` draws.

    hashing: the line of the answer that goes by hashes (`hash_order_dependence`), if there is one.
    """
    cases, planned = _all_jobs(exercise, rng, hashing)
    failed = _first_failure(planned, collect)
    if failed is None:
        return Verdict(exercise, cases)
    job, failure = failed
    if job.exercise is exercise:
        failure = _alone(exercise, cases, failure, collect) or failure
    return Verdict(exercise, cases, failure)


def examine_briefly(
    exercise: Exercise, rng: random.Random, collect: Collect, hashing: str = ""
) -> Verdict:
    """As `examine`, for whoever asks whether it passes: few ranks are tried before many, and the
    plainest story is not looked for."""
    cases, planned = _all_jobs(exercise, rng, hashing)
    few_first = sorted(planned, key=lambda launch: launch.job.world_size)
    failed = _first_failure(few_first, collect)
    return Verdict(exercise, cases, failed[1] if failed else None)


def has_right_result(
    exercise: Exercise, rng: random.Random, collect: Collect, hashing: str = ""
) -> bool:
    """Whether all values are right, and made of what is sent, where promises were not kept.

    Promises are laws about memory and state, and that no more is sent than may be.
    """
    cases, again = exercise.cases(rng), exercise.cases(rng)
    essential = tuple(law for law in all_laws() if law.essential)
    planned = [
        *map(Launch, _together(exercise, cases, again, ())),
        *launches(variations(exercise, rng, essential, hashing)),
    ]
    with traffic_limits.excess_forgiven():
        return _first_failure(planned, collect) is None


def _all_jobs(
    exercise: Exercise, rng: random.Random, hashing: str
) -> tuple[list[Case], list[Launch]]:
    cases, again = exercise.cases(rng), exercise.cases(rng)
    planned = [
        *map(Launch, _together(exercise, cases, again, all_laws())),
        *launches(variations(exercise, rng, all_laws(), hashing)),
    ]
    return cases, planned


def _first_failure(planned: Sequence[Launch], collect: Collect) -> tuple[Job, Failure] | None:
    lost: list[Launch] = []
    with contextlib.closing(collect([launch.job for launch in planned])) as outcomes:
        for number, (launch, outcome) in enumerate(zip(planned, outcomes, strict=False)):
            job = launch.job
            if failure := _failure(job, outcome, number > 0 and len(job.cases) == 1):
                return job, failure
            if outcome.trouble:
                lost += map(Launch, launch.apart)
    return _first_failure(lost, collect) if lost else None


def _together(
    exercise: Exercise, cases: list[Case], again: list[Case], held_to: Sequence[Law]
) -> list[Job]:
    laws = tuple(law for law in held_to if law.applies(exercise.contract))
    sizes = dict.fromkeys(case.world_size for case in cases)
    return [
        Job(exercise, tuple(case for case in (*cases, *again) if case.world_size == n), laws)
        for n in sizes
    ]


def variations(
    exercise: Exercise, rng: random.Random, held_to: Sequence[Law], hashing: str
) -> list[Job]:
    """The jobs by which these laws change what is sent, what is given, or who runs it."""
    return [
        Job(
            varied,
            (case,),
            may_fail=law.may_fail,
            fresh=law.fresh,
            because=law.because.format(line=hashing),
        )
        for law in held_to
        if law.variations and law.applies(exercise.contract) and (hashing or not law.fresh)
        for varied in law.variations(exercise)
        for case in varied.cases(rng)
    ]


def _failure(job: Job, outcome: Outcome, others_passed: bool = False) -> Failure | None:
    case = job.cases[0]
    if outcome.trouble:
        if job.may_fail:
            return None
        told = judge_trouble(case, outcome.trouble, others_passed)
        return Failure(case, _noted(told, job, outcome), outcome)
    worlds = [len(observation.values) for observation in outcome.observations]
    if worlds != [job.world_size] * len(job.cases):  # a sandbox may send anything
        return Failure(case, Finding("what came back is not of this run"), outcome)
    for case, observation in zip(job.cases, outcome.observations, strict=True):
        if finding := judge_case(job.exercise, case, observation, job.laws):
            return Failure(case, _noted(finding, job, outcome), outcome, observation)
    return None


def _noted(finding: Finding, job: Job, outcome: Outcome) -> Finding:
    """With what the run shows before it, and what the source shows behind it."""
    return replace(finding, likely=sentences(job.because, finding.likely, outcome.noted))


def _alone(
    exercise: Exercise, cases: list[Case], together: Failure, collect: Collect
) -> Failure | None:
    """The first case that fails in ranks of its own; else what they fail at together."""
    kind = together.outcome.trouble.kind if together.outcome.trouble else ""
    if kind in ("signature", "unattempted"):
        return None
    laws = tuple(law for law in all_laws() if law.applies(exercise.contract))
    culprit = [] if any(case is together.case for case in cases) else [together.case]
    jobs = [Job(exercise, (case,), laws) for case in (*cases, *culprit)]
    if failed := _first_failure([*map(Launch, jobs)], collect):
        return failed[1]
    if exercise.contract.transposed:
        jobs = [Job(exercise, (case,), laws, calls_before=1) for case in (*cases, *culprit)]
        if failed := _first_failure([*map(Launch, jobs)], collect):
            return replace(failed[1], finding=_transposed(exercise, failed[1]))
    return replace(together, finding=_of_state(together))


def _transposed(exercise: Exercise, failure: Failure) -> Finding:
    """What went wrong with a tensor that came transposed, and only with that."""
    finding, trouble = failure.finding, failure.outcome.trouble
    told = " ".join([finding.likely, *(trouble.errors if trouble else ())])
    cause = ""
    if "view size" in told:
        cause = ": view(-1) fails on it, and flatten() makes a copy where it must"
    elif "not contiguous" in told:
        cause = (
            ": what is made of it by reshape(n, -1), clone() or chunk() may keep its order in "
            "memory, and flatten() lays it out anew"
        )
    elif exercise.contract.in_place and not trouble:
        cause = ": reshape(-1) makes a copy of it, and what is written there is not in the tensor"
    special = f"a contiguous tensor goes well, and this one came transposed{cause}"
    return replace(finding, likely=sentences(special, finding.likely))


def _breaches(outcome: Outcome) -> list[Breach]:
    return [breach for each in outcome.observations for breach in each.breaches]


def _of_state(together: Failure) -> Finding:
    finding = together.finding
    if any(finding == told(breach) for breach in _breaches(together.outcome)):
        return finding  # a law was broken, whose sentence says why
    why = f" ({finding.likely})" if finding.likely else ""
    return replace(
        finding,
        likely="each case is right in ranks of its own, and this one goes wrong when the function "
        "was called before in the same process: something is kept between calls, in a default "
        f"argument, a global, a cache or a hook{why}",
    )
