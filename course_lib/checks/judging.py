"""Stage two of a check: from what happened to a verdict. Pure; learner code never runs here."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from course_lib.observe import RankWarning
from course_lib.text import sentences

from .exercise import Breach, Case, Clue, Exercise, Finding, Observation
from .forbidden_operations import course_answer, forbidden
from .laws import Law, same_objects
from .run_answer import Trouble
from .torch_errors import cause_of


def judge_trouble(case: Case, trouble: Trouble, others_passed: bool = False) -> Finding:
    """What is to be said of ranks that came to no result.

    others_passed: whether the cases before, without what is special here, were right.
    """
    if trouble.kind == "signature":
        return Finding(trouble.report)
    if trouble.kind == "unusable":
        what, cause = trouble.report.partition("\n\n")[0], cause_of([trouble.report])
        told = f"the check cannot go on with what your function returned: {what}"
        return Finding(sentences(told, cause))
    if warned := _first_warning(trouble.warnings):
        return warned
    if trouble.cause:
        return Finding(trouble.cause)
    # A rank that raised says itself what happened; the case's clue would only be a guess, but for
    # an error that is known to come of it. Gloo ends a process without a word where a message is
    # larger than the room for it.
    silent = trouble.kind in ("stuck", "killed") and not trouble.errors
    words = case.clue.raises if isinstance(case.clue, Clue) else ()
    known = any(word in error for word in words for error in trouble.errors)
    before = "the cases before were right" if others_passed else ""
    if case.clue and (silent or (known and others_passed)):
        special = f"{before}. What is special about this one: " if before else ""
        return Finding(f"{special}{case.clue}", special=others_passed)
    cause = cause_of(trouble.errors) or (_SIGSEGV if "SIGSEGV" in trouble.report else "")
    new = f"{before}: look at what is new in this one" if before else ""
    return Finding(sentences(cause, new))


_SIGSEGV = (
    "a process ends like this when it reads or writes memory that is not there, as that of a "
    "tensor whose storage was given back by resize_(0)"
)


def judge_case(
    exercise: Exercise, case: Case, observation: Observation, laws: Sequence[Law] = ()
) -> Finding | None:
    """What is wrong with one case of an answer, the most telling cause first; None if it is right.

    A forbidden operation or a warning comes before the values: it is why they are wrong, or why it
    says nothing that they are right. A law that was broken comes after them.
    """
    return (
        course_answer(observation.trace)
        or forbidden(exercise.contract.allowed, observation.trace)
        or _first_warning(observation.warnings)
        or _with_moved(_told_apart(_judged(exercise, case, observation)), observation)
        or _by_record(exercise, case, observation, laws)
        or _first_breach(observation)
    )


def _by_record(
    exercise: Exercise, case: Case, observation: Observation, laws: Sequence[Law]
) -> Finding | None:
    found = (law.judge(exercise.contract, case, observation) for law in laws if law.judge)
    return next(filter(None, found), None)


def _first_warning(warnings: Iterable[RankWarning]) -> Finding | None:
    """What gloo lets pass and the recorder saw: a buffer rewritten in flight, a missing wait."""
    for warning in warnings:
        return Finding(warning.message, rank=warning.rank)
    return None


def _told_apart(finding: Finding | None) -> Finding | None:
    """Two numbers that are not equal, and look so, are said to differ."""
    if finding and finding.expected and finding.expected == finding.got:
        return replace(finding, got=f"{finding.got}, which differs in digits not shown here")
    return finding


def _judged(exercise: Exercise, case: Case, observation: Observation) -> Finding | None:
    try:
        return exercise.judge(case, observation)
    except Exception as problem:
        # The judge did not foresee what the answer returned: nothing is shown by that, but it is
        # not what was asked.
        return Finding(
            "what your function returned is not of the kind that is expected: comparing it raised "
            f"{type(problem).__name__}: {problem}"
        )


def _first_breach(observation: Observation) -> Finding | None:
    return next(map(told, observation.breaches), None)


def told(breach: Breach) -> Finding:
    """What is said of a law that was broken where all else is right."""
    return Finding(f"the result is right, but {breach.sentence}", breach.rank, promise=True)


def _with_moved(finding: Finding | None, observation: Observation) -> Finding | None:
    """A result that nobody can see, since the tensor was given other memory, is told so."""
    moved = [b.sentence for b in observation.breaches if same_objects.is_of_memory(b.sentence)]
    if finding is None or not moved:
        return finding
    return replace(finding, likely=sentences(finding.likely, moved[0]))
