"""Verdicts: take the learner's function, run it on real ranks, say what is right or wrong."""

from course_lib.checks.check import check
from course_lib.checks.hint import hint
from course_lib.checks.verdict import CheckFailed, NotAttempted

__all__ = ["CheckFailed", "NotAttempted", "check", "hint"]
