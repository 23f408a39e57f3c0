"""Verdicts: take the learner's function, run it on real ranks, say what is right or wrong.

In the order in which to read, each line by itself:

    what learners call   check, hint, unsolved; lookup, registry, notebook, progress
    an exercise          exercise, contract, seeds, shares; exercises/ has them all
    a whole check        check_here, whole_check, shared_launches
    run an answer        run_answer; on a rank run_cases, answers, groups, marks, hashes, reached
    judge it             judging, verdict; forbidden_operations, traffic_limits, laws
      its tensors        reference, tolerance, compare, likely_causes, glimpse
      its numbers        numbers, formulas, decisions
      after a failure    answer_source, torch_errors
    for exercises        inputs, arriving_messages
    when it counts       sandbox
    checks of checks     known_answers
"""

from .check import check
from .hint import hint
from .unsolved import guessed, solved, whose, yours_or
from .verdict import CheckFailed, NotAttempted

__all__ = [
    "CheckFailed",
    "NotAttempted",
    "check",
    "guessed",
    "hint",
    "solved",
    "whose",
    "yours_or",
]
