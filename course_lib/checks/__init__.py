"""Verdicts: take the learner's function, run it on real ranks, say what is right or wrong."""

from .check import check
from .hint import hint
from .verdict import CheckFailed, NotAttempted

__all__ = ["CheckFailed", "NotAttempted", "check", "hint"]
