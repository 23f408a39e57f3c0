"""Verdicts: take the learner's function, run it on real ranks, say what is right or wrong.

In the order in which to read, each line by itself:

    what learners call   check, hint, unsolved; find_exercise, registry, calling_notebook, progress
    an exercise          exercise, contract, seeds, rank_inputs; exercises/ has them all
    a whole check        check_in_kernel, examine, shared_launches
    run an answer        run_answer; on a rank run_cases, call_answer, process_groups,
                         profiler_labels; hash_order_dependence, reachable_objects
    judge it             judging, verdict, feedback; forbidden_operations, traffic_limits, laws
      its tensors        reference, tolerance, compare_tensors, likely_causes, format_tensor
      its numbers        returned_numbers, byte_formulas, decisions
      after a failure    static_analysis, torch_errors
    for exercises        case_inputs, arriving_messages
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
