"""Verdicts on a number of bytes that a formula gives."""

from collections.abc import Iterable
from typing import Any

from .call_answer import kind_of
from .exercise import Finding
from .returned_numbers import close, number
from .tolerance import EXACT

Causes = Iterable[tuple[float, str]]
"""What other formulas give, and what somebody who got that has missed."""


def answered(value: Any, want: float, causes: Causes, otherwise: str) -> Finding | None:
    """Why what was returned is not the number `want`; None if it is."""
    got = number(value)
    if got is None:
        return Finding(f"one number is expected: this is {kind_of(value)}", got=kind_of(value))
    return differs(got, want, causes, otherwise)


def differs(got: float, want: float, causes: Causes, otherwise: str) -> Finding | None:
    """Why `got` is not `want`; None if it is. otherwise: what to say where no cause fits."""
    if close(got, want, EXACT):
        return None
    fits = dict.fromkeys(cause for value, cause in causes if close(got, value, EXACT))
    return Finding(
        "; or ".join(fits) or otherwise, expected=f"{want:,.0f} bytes", got=f"{got:,.0f} bytes"
    )
