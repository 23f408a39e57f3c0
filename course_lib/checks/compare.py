"""Values against a reference that was computed in one process, and what a difference says.

All-reduce is not bitwise the serial sum: floating-point addition depends on its order. So sums are
compared with a float64 reference, within what rounding can do; integers and moved data exactly.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from course_lib.checks.answers import Other
from course_lib.checks.exercise import Finding
from course_lib.checks.gates import ranks
from course_lib.checks.glimpse import glimpse

_LEGIBLE_PARTS = 5  # up to so many ranks every mix of their parts is tried (3^5)
_SAMPLE = 64


@dataclass(frozen=True)
class Reference:
    """What a tensor should hold.

    value: float64, or int64 for integers; in the shape that is asked.
    tolerance: how far rounding may take each element (float64, same shape).
    dtype: what the answer is to have.
    parts: the ranks' inputs whose sum or average it is, in the same shape; () if it is neither.
    average: whether it is the average.
    """

    value: torch.Tensor
    tolerance: torch.Tensor
    dtype: torch.dtype
    parts: tuple[torch.Tensor, ...] = ()
    average: bool = False

    def flat(self, start: int, stop: int) -> "Reference":
        """Elements `start` to `stop` of the flattened reference."""
        return Reference(
            self.value.reshape(-1)[start:stop],
            self.tolerance.reshape(-1)[start:stop],
            self.dtype,
            tuple(part.reshape(-1)[start:stop] for part in self.parts),
            self.average,
        )


def total(inputs: Sequence[torch.Tensor], average: bool = False) -> Reference:
    """The sum (or average) of one tensor from each rank.

    n-1 additions in any order are off by at most (n-1) u sum|x|, u half the distance from 1 to the
    next number of the dtype (Higham, Accuracy and Stability, section 4.2); twice that is allowed.
    """
    dtype = inputs[0].dtype
    exact = torch.float64 if dtype.is_floating_point else torch.int64
    parts = tuple(tensor.to(exact) for tensor in inputs)
    value = sum(parts[1:], parts[0].clone())
    size = sum(part.abs().double() for part in parts)
    if average:
        value, size = value / len(parts), size / len(parts)
    rounding = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    return Reference(value, len(parts) * rounding * size, dtype, parts, average)


def moved(tensor: torch.Tensor) -> Reference:
    """Data that was only moved: nothing may differ."""
    exact = torch.float64 if tensor.is_floating_point() else torch.int64
    return Reference(tensor.to(exact), torch.zeros(tensor.shape, dtype=torch.float64), tensor.dtype)


# ---------------------------------------------------------------------------------------------


def mismatch(
    got: Any,
    want: Reference,
    rank: int,
    lookalikes: Mapping[str, torch.Tensor] | None = None,
    what: str = "your function returned",
) -> Finding | None:
    """Why `got` is not the tensor that `want` describes; None if it is.

    lookalikes: what it may be instead, by name: {"rank 1's chunk of the sum": tensor}.
    what: begins the sentence for something that is no tensor of the right kind.
    """
    if (finding := not_a_tensor(got, want, rank, what)) is not None:
        return finding
    exact = got.to(want.value.dtype)
    difference = (exact - want.value).abs().double()
    wrong = ~(difference <= want.tolerance)  # also where it is nan
    if not wrong.any():
        return None
    first = int(wrong.reshape(-1).nonzero()[0])
    return Finding(
        _cause(exact, want, wrong.reshape(-1), rank, lookalikes or {}),
        rank,
        expected=glimpse(want.value.to(want.dtype), first),
        got=glimpse(got, first),
    )


def not_a_tensor(
    got: Any, want: Reference, rank: int, what: str = "your function returned"
) -> Finding | None:
    """Why `got` is not even a tensor of the shape and dtype of `want`."""
    expected = f"a tensor of shape {tuple(want.value.shape)}, {_dtype(want.dtype)}"
    if got is None:
        return Finding(
            f"{what} nothing: is a `return` missing at the end?",
            rank,
            expected=expected,
            got="None",
        )
    if not isinstance(got, torch.Tensor):
        kind = got.kind if isinstance(got, Other) else f"a {type(got).__name__}"
        return Finding(f"{what} {kind}, not a tensor", rank, expected=expected, got=kind)
    has = f"a tensor of shape {tuple(got.shape)}, {_dtype(got.dtype)}"
    if got.shape != want.value.shape:
        return Finding(f"{what} the wrong shape", rank, expected=expected, got=has)
    if got.dtype != want.dtype:
        return Finding(
            f"{what} the wrong dtype: it must stay as it came in", rank, expected=expected, got=has
        )
    return None


def ranks_differ(values: Mapping[int, torch.Tensor]) -> Finding | None:
    """Ranks that do not hold the same bits, by rank; None if all do."""
    first, *others = values
    for rank in others:
        differs = (values[rank] != values[first]).reshape(-1)
        if differs.any():
            at = int(differs.nonzero()[0])
            return Finding(
                f"each rank is right within rounding, but rank {rank} and rank {first} do not hold "
                "the same bits, and replicas that differ drift apart. Add each element up on one "
                "rank, then pass the finished sum round",
                rank,
                expected=f"as on rank {first}: {glimpse(values[first], at)}",
                got=glimpse(values[rank], at),
            )
    return None


# ---------------------------------------------------------------------------------------------


def _cause(
    got: torch.Tensor,
    want: Reference,
    wrong: torch.Tensor,
    rank: int,
    lookalikes: Mapping[str, torch.Tensor],
) -> str:
    got, value = got.reshape(-1), want.value.reshape(-1)
    tolerance = want.tolerance.reshape(-1)
    if got.is_floating_point() and not got.isfinite().all():
        return "there are values that are not finite: memory that nothing was written to?"
    if not got.any():
        return "all zeros: nothing has been written into the result"
    for name, other in lookalikes.items():
        if other.numel() == got.numel() and torch.equal(
            got.double(), other.reshape(-1).to(want.dtype).double()
        ):
            return f"this is {name}"
    if phrase := _mix(got[wrong], want, wrong, rank):
        return _where(wrong) + phrase
    if phrase := _ratio(got.double(), value.double(), tolerance, want):
        return phrase
    return _where(wrong).rstrip(": ") + (" differ" if not wrong.all() else "the values differ")


def _ratio(got: torch.Tensor, value: torch.Tensor, tolerance: torch.Tensor, want: Reference) -> str:
    """A constant factor between the two."""
    n = len(want.parts) or 1
    for factor in sorted({n, 2, 3, 4}):
        if factor > 1 and ((got - value * factor).abs() <= factor * tolerance).all():
            return f"exactly {_times(factor)} the reference: " + (
                "you summed, and an average is asked"
                if want.average and factor == n
                else "something is added more than once"
            )
        if factor > 1 and ((got * factor - value).abs() <= factor * tolerance).all():
            part = "half" if factor == 2 else f"1/{factor} of"
            return f"exactly {part} the reference: " + (
                "you averaged a sum"
                if factor == n and not want.average
                else "is something divided twice, or a part missing?"
            )
    if ((got + value).abs() <= tolerance).all():
        return "the sign is turned"
    return ""


def _mix(got: torch.Tensor, want: Reference, wrong: torch.Tensor, rank: int) -> str:
    """Whose parts a wrong sum is made of, if each is in it 0, 1 or 2 times."""
    n = len(want.parts)
    if n < 2 or want.average or want.dtype == torch.bfloat16:
        return ""  # bfloat16 rounds so coarsely that several mixes fit
    sample = slice(0, _SAMPLE)
    parts = torch.stack([part.reshape(-1)[wrong][sample] for part in want.parts]).double()
    tolerance = 2 * want.tolerance.reshape(-1)[wrong][sample]
    fits = []
    for counts in _mixes(n):
        mix = (parts * torch.tensor(counts, dtype=torch.float64)[:, None]).sum(0)
        if ((mix - got[sample].double()).abs() <= tolerance).all():
            fits.append(counts)
    fits.sort(key=lambda counts: sum(count != 1 for count in counts))
    if not fits or (len(fits) > 1 and _oddity(fits[0]) == _oddity(fits[1])):
        return ""
    return _told(fits[0], rank)


def _mixes(n: int) -> list[tuple[int, ...]]:
    if n <= _LEGIBLE_PARTS:
        mixes = set(itertools.product((0, 1, 2), repeat=n))
    else:
        mixes = {tuple(c if r == i else 1 for r in range(n)) for i in range(n) for c in (0, 2)}
        mixes |= {tuple(int(r == i) for r in range(n)) for i in range(n)}
    return sorted(mixes - {(1,) * n, (0,) * n, (2,) * n})


def _oddity(counts: tuple[int, ...]) -> int:
    return sum(count != 1 for count in counts)


def _told(counts: tuple[int, ...], rank: int) -> str:
    if sum(counts) == 1:
        own = counts.index(1)
        if own == rank:
            return "this is still the rank's own input, with nothing added"
        return f"this is rank {own}'s input, with nothing added"
    missing = [r for r, count in enumerate(counts) if count == 0]
    twice = [r for r, count in enumerate(counts) if count == 2]
    phrases = []
    if missing:
        phrases.append(f"the part of {ranks(missing)} is missing")
    if twice:
        phrases.append(f"the part of {ranks(twice)} is counted twice")
    return ", and ".join(phrases)


def _where(wrong: torch.Tensor) -> str:
    """ "elements 4 to 6 of 7: ", or "" when all are wrong."""
    if wrong.all():
        return ""
    indices = wrong.nonzero().reshape(-1).tolist()
    first, last = indices[0], indices[-1]
    if len(indices) == 1:
        return f"only element {first} of {len(wrong)} is wrong: "
    if len(indices) == last - first + 1:
        place = f"only elements {first} to {last} of {len(wrong)} are wrong"
        return place + (" (the last ones): " if last == len(wrong) - 1 else ": ")
    return f"{len(indices)} of {len(wrong)} elements are wrong: "


def _times(factor: int) -> str:
    return "twice" if factor == 2 else f"{factor} times"


def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
