"""An answer's tensors against their references, and against each other."""

import contextlib
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import torch

from . import reference, tolerance
from .call_answer import kind_of
from .exercise import Finding
from .format_tensor import glimpses
from .likely_causes import likely_cause
from .reference import Reference

Evidence = dict[int, tuple[str, str]]  # rank -> what it should hold, what it holds
_SURVEY: ContextVar[Evidence | None] = ContextVar("_SURVEY", default=None)


def mismatch(
    got: Any,
    want: Reference,
    rank: int,
    lookalikes: Mapping[str, torch.Tensor] | None = None,
) -> Finding | None:
    """Why `got` is not the tensor that `want` describes; None if it is.

    lookalikes: what it may be instead, by name: {"rank 1's chunk of the sum": tensor}.
    """
    finding = _mismatch(got, want, rank, lookalikes or {})
    if (seen := _SURVEY.get()) is None:
        return finding
    if finding is not None:
        seen.setdefault(rank, (finding.expected, finding.got))
    return None


def survey(judge: Callable[[], Finding | None]) -> Evidence:
    """What is wrong on each rank, by what a judge compares that goes on as if all were right."""
    seen: Evidence = {}
    token = _SURVEY.set(seen)
    try:
        with contextlib.suppress(Exception):  # it did not foresee what it goes on with
            judge()
    finally:
        _SURVEY.reset(token)
    return seen


def _mismatch(
    got: Any, want: Reference, rank: int, lookalikes: Mapping[str, torch.Tensor]
) -> Finding | None:
    if (finding := _not_a_tensor(got, want, rank)) is not None:
        return finding
    exact = got.to(want.value.dtype)
    difference = (exact - want.value).abs().double()
    wrong = ~(difference <= want.tolerance)  # also where it is nan
    if not wrong.any():
        return None
    first = int(wrong.reshape(-1).nonzero()[0])
    expected, found = glimpses(want.value.to(want.dtype), got, first)
    likely = likely_cause(exact, want, wrong, rank, lookalikes)
    return Finding(likely, rank, expected=expected, got=found)


def computed(
    got: Any,
    wanted: torch.Tensor,
    rank: int,
    looks: Mapping[str, torch.Tensor] | None = None,
    rounding: float = tolerance.LAYER,
) -> Finding | None:
    """As `mismatch`, for what was computed in float64: both fit up to rounding.

    looks: what it may be instead, by name: {"this rank's own summand": tensor}.
    rounding: the share that `tolerance.share_of_largest` allows.
    """
    finding = mismatch(got, reference.computed(wanted, rounding), rank)
    if finding is None:
        return None
    if fits := [name for name, other in (looks or {}).items() if alike(got, other, rounding)]:
        return replace(finding, likely=f"this is {'; or '.join(fits)}")
    return finding


def alike(got: Any, other: torch.Tensor, rounding: float = tolerance.LAYER) -> bool:
    """Whether a tensor computed in float64 is another one, up to rounding."""
    if not isinstance(got, torch.Tensor) or got.shape != other.shape:
        return False
    return bool(((got - other).abs() <= tolerance.share_of_largest(other, rounding)).all())


def titled(title: str, finding: Finding | None) -> Finding | None:
    """What was found, with what it was found of before it: "weights: all zeros ..."."""
    return finding and replace(finding, likely=f"{title}: {finding.likely}")


def _not_a_tensor(got: Any, want: Reference, rank: int) -> Finding | None:
    """Why `got` is not even a tensor of the shape and dtype of `want`."""
    expected = f"a tensor of shape {tuple(want.value.shape)}, {_dtype(want.dtype)}"
    if got is None:
        likely = "your function returned nothing: is a `return` missing at the end?"
        return Finding(likely, rank, expected=expected, got="None")
    if not isinstance(got, torch.Tensor):
        kind = kind_of(got)
        # An array of numpy has become one (`answers.plain`).
        shown = f"{kind}, or an array of numpy" if isinstance(got, list) else kind
        return Finding(f"this is {kind}, not a tensor", rank, expected=expected, got=shown)
    has = f"a tensor of shape {tuple(got.shape)}, {_dtype(got.dtype)}"
    if got.shape != want.value.shape:
        return Finding("the shape is wrong", rank, expected=expected, got=has)
    if got.dtype != want.dtype:
        likely = "the dtype is wrong: give back the dtype that came in"
        return Finding(likely, rank, expected=expected, got=has)
    return None


def ranks_differ(values: Mapping[int, torch.Tensor]) -> Finding | None:
    """Ranks that do not hold the same bits, by rank; None if all do."""
    first, *others = values
    for rank in others:
        differs = (values[rank] != values[first]).reshape(-1)
        if differs.any():
            at = int(differs.nonzero()[0])
            expected, got = glimpses(values[first], values[rank], at)
            return Finding(
                f"each rank is right within rounding, but rank {rank} and rank {first} do not hold "
                "the same bits, and replicas that differ drift apart. Add each element up on one "
                "rank, then pass the finished sum round",
                rank,
                expected=f"as on rank {first}: {expected}",
                got=got,
            )
    return None


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
