"""Stage one of a check: run the answer on ranks and bring back what happened, as plain data.

Learner code runs in this stage and only here. What comes back is judged elsewhere (`judging`), in
the same process when a learner checks, in another one when it counts.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field

from course_lib.observe import RankWarning
from course_lib.ranks import RankError, RankTimeout, collect

from .exercise import Case, Exercise, Observation

UNATTEMPTED = "not attempted yet"  # what the holes of the student notebooks raise


@dataclass
class Trouble:
    """Why there is nothing to judge.

    kind: "signature" (the answer cannot be called as the task says), "unattempted" (a hole of the
        notebook is still empty), "failed" (a rank raised or died) or "stuck".
    report: the text to show; for "unattempted" the name of the function with the hole.
    warnings: what went silently wrong before.
    """

    kind: str
    report: str
    warnings: list[RankWarning] = field(default_factory=list)


@dataclass
class Outcome:
    """What one case came to: an observation or the trouble instead, and what the ranks printed."""

    observation: Observation | None = None
    trouble: Trouble | None = None
    printed: dict[int, str] = field(default_factory=dict)


def collect_case(exercise: Exercise, answer: Callable, case: Case) -> Outcome:
    """Run `answer` on the ranks of one case."""
    if misfit := signature_misfit(exercise, answer):
        return Outcome(trouble=Trouble("signature", misfit))
    try:
        results = collect(
            exercise.on_rank,
            case.world_size,
            (answer, case),
            timeout=exercise.timeout,
            device="cpu",
        )
    except RankError as error:
        return Outcome(trouble=_trouble(error), printed=error.output)
    except ValueError as problem:  # the answer cannot be sent to another process
        return Outcome(trouble=Trouble("failed", str(problem)))
    assert results.trace is not None, "runs are observed unless asked otherwise"
    return Outcome(
        Observation(list(results), results.trace, results.warnings), printed=results.output
    )


def signature_misfit(exercise: Exercise, answer: Callable) -> str:
    """Why `answer` cannot be called with the arguments of the exercise; "" if it can."""
    asked = inspect.signature(_stub(exercise))
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


def _stub(exercise: Exercise) -> Callable:
    """A function with the exercise's signature, to compare with."""
    names: dict = {}
    exec(f"def stub{exercise.signature}: ...", names)
    return names["stub"]


def _trouble(error: RankError) -> Trouble:
    for failure in error.failures.values():
        empty = failure.what.startswith("NotImplementedError") and (
            UNATTEMPTED in failure.what or failure.what == "NotImplementedError"
        )
        if failure.kind == "raised" and empty:
            function = failure.where[0].function if failure.where else ""
            return Trouble("unattempted", function)
    kind = "stuck" if isinstance(error, RankTimeout) else "failed"
    return Trouble(kind, error.report, error.warnings)
