"""Verdicts: take the learner's function, run it on real ranks, say what is right or wrong."""

from .check import check
from .hint import hint
from .unsolved import guessed, solved, yours_or
from .verdict import CheckFailed, NotAttempted

__all__ = ["CheckFailed", "NotAttempted", "check", "guessed", "hint", "solved", "yours_or"]
