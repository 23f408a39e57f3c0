"""Forwards `techniques.zero1`, a name that stays: stage 1 is written in zero/zero1.py."""

from .zero.zero1 import CarelessZero1, Zero1

__all__ = ["CarelessZero1", "Zero1"]
