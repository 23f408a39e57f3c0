"""Inputs of the checks that a learner runs, and other inputs of the same kind for grading."""

import random

_PUBLIC = "public"


def public(exercise: str) -> random.Random:
    """The inputs of `check`: the same at every run and on every machine."""
    return random.Random(f"{_PUBLIC}/{exercise}")


def hidden(exercise: str, secret: str) -> random.Random:
    """Other inputs, which only the holder of `secret` can draw. Raises `ValueError` for none."""
    if not secret or secret == _PUBLIC:
        raise ValueError(f"hidden inputs need a secret of their own, not {secret!r}")
    return random.Random(f"{secret}/{exercise}")
