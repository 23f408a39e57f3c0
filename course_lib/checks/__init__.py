"""Verdicts: take the learner's function, run it on real ranks, say what is right or wrong."""

from .check import check
from .hint import hint
from .verdict import CheckFailed, NotAttempted
from .yours import guessed, solved, yours_or

__all__ = ["CheckFailed", "NotAttempted", "check", "guessed", "hint", "solved", "yours_or"]
