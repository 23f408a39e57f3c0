"""Stage two of a check: from what happened to a verdict. Pure; learner code never runs here."""

from . import gates
from .collecting import Outcome
from .exercise import Case, Exercise, Finding


def judge_case(exercise: Exercise, case: Case, outcome: Outcome) -> Finding | None:
    """What is wrong with one case of an answer, the most telling cause first; None if it is right.

    A forbidden operation or a warning comes before the values: it is why they are wrong, or
    why it says nothing that they are right.
    """
    if trouble := outcome.trouble:
        if trouble.kind == "signature":
            return Finding(trouble.report)
        return gates.first_warning(trouble.warnings) or Finding(case.clue)
    observation = outcome.observation
    assert observation is not None, "an outcome is an observation or a trouble"
    return (
        gates.course_answer(observation.trace)
        or gates.forbidden(exercise.allowed, observation.trace)
        or gates.first_warning(observation.warnings)
        or exercise.judge(case, observation)
    )
