"""Forwards `techniques.zero3`, a name that stays: stage 3 is written in zero/zero3.py."""

from .zero.zero3 import Zero3

__all__ = ["Zero3"]
