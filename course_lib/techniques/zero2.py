"""Forwards `techniques.zero2`, a name that stays: stage 2 is written in zero/zero2.py."""

from .zero.zero2 import Zero2

__all__ = ["Zero2"]
