"""Stage one of a check: run the answer on ranks and bring back what happened, as plain data.

Learner code runs in this stage and only here. What comes back is judged elsewhere (`judging`), in
the same process when a learner checks, in another one when it counts.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

from course_lib.observe import RankWarning, Trace
from course_lib.ranks import RankError, RankTimeout, collect
from course_lib.ranks.results import RankResults
from course_lib.ranks.run_ranks import import_ahead

from .exercise import Breach, Case, Exercise, Observation
from .laws import all_laws
from .laws._law import Law
from .rank_inputs import share
from .run_cases import SPAN, Unusable, asked_signature, run_cases
from .static_analysis import late_binding, never_emptied, recv_for_its_tensor

_START_SECONDS = 10.0  # the most that a fresh Python takes to import torch
UNATTEMPTED = "not attempted yet"  # what the holes of the student notebooks raise


@dataclass(frozen=True)
class Job:
    """Cases of one world size for the same ranks to go through, under these laws.

    may_fail: whether it is no fault if they come to no result.
    fresh: whether the last rank is a Python of its own.
    because: what it shows if they come to no result, or to a wrong one.
    calls_before: what the first call counts as (`Call.number`); the laws treat odd ones otherwise.
    """

    exercise: Exercise
    cases: tuple[Case, ...]
    laws: tuple[Law, ...] = ()
    may_fail: bool = False
    fresh: bool = False
    because: str = ""
    calls_before: int = 0

    @property
    def world_size(self) -> int:
        return self.cases[0].world_size


@dataclass
class Trouble:
    """Why there is nothing to judge.

    kind: "signature" (the answer cannot be called as the task says), "unattempted" (a hole of the
        notebook is still empty), "failed" (a rank raised or left), "killed" (none raised, and a
        signal ended one), "stuck", or "unusable" (what the answer returned made the check's own
        line raise).
    report: the text to show; for "unattempted" the name of the function with the hole.
    warnings: what went silently wrong before.
    cause: what the source of the answer shows to be wrong, "" if nothing is known.
    errors: what the ranks raised, in torch's or Python's words.
    run_error: all that is known of the run, for a picture of it. It stays in this process.
    """

    kind: str
    report: str
    warnings: list[RankWarning] = field(default_factory=list)
    cause: str = ""
    errors: list[str] = field(default_factory=list)
    run_error: RankError | None = field(default=None, init=False, repr=False, compare=False)


@dataclass(frozen=True)
class Crossed:
    """What crossed the network of a sandbox, whoever sent it.

    bytes: without the heads of packets. again: how many packets were sent a second time.
    """

    bytes: int = 0
    again: int = 0

    def __sub__(self, before: "Crossed") -> "Crossed":
        return Crossed(self.bytes - before.bytes, self.again - before.again)


@dataclass
class Outcome:
    """What a job came to: an observation of each case, or the trouble; and what was printed.

    noted: what looks wrong in the source of the answer, should it fail.
    crossed: what crossed the network of a sandbox meanwhile.
    """

    observations: list[Observation] = field(default_factory=list)
    trouble: Trouble | None = None
    printed: dict[int, str] = field(default_factory=dict)
    noted: str = ""
    crossed: Crossed = field(default_factory=Crossed)


def collect_job(answer: Callable, job: Job, timeout: float | None = None) -> Outcome:
    """Run `answer` on the ranks of one job; timeout: seconds, instead of the exercise's own."""
    exercise = job.exercise
    if mismatch := signature_mismatch(exercise, answer):
        return Outcome(trouble=Trouble("signature", mismatch))
    functions = (run_cases, *(law.watch for law in all_laws() if law.watch))
    import_ahead(exercise.module, *(function.__module__ for function in functions))
    try:
        results = collect(
            run_cases,
            job.world_size,
            (exercise.bare(), answer, [law.bare() for law in job.laws], job.calls_before),
            by_rank=[
                (tuple(share(exercise, case, rank) for case in job.cases),)
                for rank in range(job.world_size)
            ],
            timeout=(timeout or exercise.timeout) + _START_SECONDS * job.fresh,
            observe=exercise.observe,
            device="cpu",
            fresh=[job.world_size - 1] if job.fresh else [],
        )
    except RankError as error:
        trouble = _trouble(error, answer)
        trouble.run_error = error
        return Outcome(trouble=trouble, printed=error.output, noted=_noted(answer))
    except ValueError as problem:  # the answer cannot be sent to another process
        return Outcome(trouble=Trouble("failed", str(problem)))
    observations = _observations(results, len(job.cases))
    return Outcome(observations, printed=results.output, noted=_noted(answer))


def _noted(answer: Callable) -> str:
    return late_binding(answer) or never_emptied(answer)


def _observations(results: RankResults, cases: int) -> list[Observation]:
    assert results.trace is not None, "a job is always observed"
    found = []
    for index in range(cases):
        seen = [of_rank[index] for of_rank in results]
        breaches = [Breach(rank, text) for rank, each in enumerate(seen) for text in each.breaches]
        found.append(
            Observation(
                [each.value for each in seen],
                results.trace if cases == 1 else part_of(results.trace, SPAN.format(index)),
                # Which case a warning belongs to is not known: the last one has them all.
                results.warnings if index == cases - 1 else [],
                breaches,
            )
        )
    return found


def part_of(trace: Trace, label: str) -> Trace:
    """What a trace holds of what ran under a label, but for what lay in memory."""
    spans = {each.rank: each for each in trace.labels if each.name == label}
    return Trace(
        trace.world_size,
        [event for event in trace.events if label in event.spans],
        labels=[
            each
            for each in trace.labels
            if spans[each.rank].start <= each.start and each.end <= spans[each.rank].end
        ],
    )


def signature_mismatch(exercise: Exercise, answer: Callable) -> str:
    """Why `answer` cannot be called with the arguments of the exercise; "" if it can."""
    asked = asked_signature(exercise)
    try:
        own = inspect.signature(answer)
    except (TypeError, ValueError):  # a builtin: no signature to compare
        return ""
    required = [p.name for p in asked.parameters.values() if p.default is p.empty]
    optional = {p.name: None for p in asked.parameters.values() if p.default is not p.empty}
    try:
        own.bind(*required, **optional)
    except TypeError:
        return (
            f"the task is {exercise.name}{exercise.signature}, and yours is "
            f"{exercise.name}{own}: give it these arguments, in this order"
        )
    return ""


def _trouble(error: RankError, answer: Callable) -> Trouble:
    for failure in error.failures.values():
        empty = failure.what.startswith("NotImplementedError") and (
            UNATTEMPTED in failure.what or failure.what == "NotImplementedError"
        )
        if failure.kind == "raised" and empty:
            function = failure.where[0].function if failure.where else ""
            return Trouble("unattempted", function)
        if failure.kind == "raised" and failure.what.startswith(Unusable.__name__):
            report = failure.what.removeprefix(f"{Unusable.__name__}: ")
            return Trouble("unusable", report, error.warnings)
    kinds = {failure.kind for failure in error.failures.values()}
    kind = "stuck" if isinstance(error, RankTimeout) else "failed"
    if "killed" in kinds and "raised" not in kinds:
        kind = "killed"
    whole_number = any("'int'" in failure.what for failure in error.failures.values())
    cause = recv_for_its_tensor(answer) if whole_number else ""
    raised = [failure.what for failure in error.failures.values() if failure.kind == "raised"]
    return Trouble(kind, error.report, error.warnings, cause, raised)
