"""Numbers that an answer returned."""

import math
from typing import Any

import torch


def number(value: Any) -> float | None:
    """A Python or tensor number as a float; None for anything else."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def numbers(value: Any, count: int) -> list[float] | None:
    """A sequence of `count` numbers as floats; None for anything else."""
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    found = [number(item) for item in value] if isinstance(value, tuple | list) else []
    sure = [item for item in found if item is not None]
    return sure if len(sure) == len(found) == count else None


def whole(value: Any) -> int | None:
    """A whole number of Python, or a tensor with one; None for anything else, 4.0 as well."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def near(value: Any, want: float, relative: float) -> bool:
    """Whether a number is `want`; one in a tensor, to the digits that its dtype has."""
    got = number(value)
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        relative = max(relative, 8 * torch.finfo(value.dtype).eps)
    return got is not None and close(got, want, relative)


def cut_off(got: float, want: float) -> str:
    """What to say where whole division has taken away what is behind the point; "" elsewhere."""
    if got == math.floor(want) != want:
        return "// leaves out what does not divide: / is the division that keeps it"
    return ""


def close(got: float, want: float, relative: float) -> bool:
    return abs(got - want) <= relative * abs(want)
