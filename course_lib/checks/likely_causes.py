"""What a wrong tensor tells about its cause."""

import itertools
from collections.abc import Iterator, Mapping

import torch

from .reference import Reference
from .traffic_limits import ranks

_LEGIBLE_PARTS = 5  # up to so many ranks every mix of their parts is tried (3^5)
_SAMPLE = 64  # elements looked at


def likely_cause(
    got: torch.Tensor,
    want: Reference,
    wrong: torch.Tensor,
    rank: int,
    lookalikes: Mapping[str, torch.Tensor],
) -> str:
    """One phrase on `got`, which differs from `want` where `wrong` is True.

    rank: whose result it is. lookalikes: what it may be instead, by name.
    """
    got, wrong, want = got.reshape(-1), wrong.reshape(-1), want.flat(0, wrong.numel())
    if got.is_floating_point() and not got.isfinite().all():
        return _not_finite(got, want)
    if not got.any():
        return "all zeros, as if nothing had been written into the result"
    fitting = [name for name, other in lookalikes.items() if _is(got, other)]
    if fitting:
        return "this is " + ", or ".join(fitting)
    first = int(wrong.nonzero()[0])
    only_first = torch.arange(len(wrong)) == first
    where = _where(wrong)
    mix, known = _mix(got, want, wrong, rank), _known(got, want)
    if mix and where:
        return f"{where}: {mix}"
    if mix and _is(got, want.parts.get(rank, got[:0])):
        return mix  # nothing was done at all: far more common than what it looks like
    if mix or known:
        return ", or ".join(filter(None, [mix, *known]))
    if cause := _ratio(got.double(), want) or _order(got, want):
        return cause
    if mix := _mix(got, want, only_first, rank):
        return f"{where or 'the values differ'}; at element {first} {mix}"
    return where or "the values differ"


def _not_finite(got: torch.Tensor, want: Reference) -> str:
    if want.parts:
        most = torch.finfo(torch.float16).max
        reach = torch.stack(list(want.parts.values())).abs().double().sum(0)
        lost = ~got.isfinite()
        if (reach[lost] > most).all() and (want.value[~lost].abs() <= most * (1 + 2**-11)).all():
            return (
                f"values are not finite just where float16, which ends at {most:.0f}, cannot hold "
                "the ranks' values or their sum: something went through that dtype"
            )
    return (
        "there are values that are not finite: an overflow, a division by 0, or memory that "
        "nothing was written to?"
    )


def _known(got: torch.Tensor, want: Reference) -> list[str]:
    """The mistakes that give just this; not one that gives what is right on this input."""
    found = [
        phrase
        for phrase, other in _mistakes(want)
        if _close(got, other, want) and not _close(want.value, other, want)
    ]
    return found or list(filter(None, [_added_in_floats(got, want)]))


def _added_in_floats(got: torch.Tensor, want: Reference) -> str:
    """Sums that are right to the digits of a narrower float in which they were added up."""
    narrower: dict[torch.dtype, tuple[torch.dtype, ...]] = {torch.float64: (torch.float32,)}
    if not want.dtype.is_floating_point:
        narrower[want.dtype] = (torch.float64, torch.float32)
    parts = list(want.parts.values())
    # Of a sum whose parts are not known, its largest element says how large they were.
    size = torch.stack(parts).abs().double().sum(0) if parts else want.value.abs().double().max()
    off = (got - want.value).abs().double()
    what = "something" if want.dtype.is_floating_point else "whole numbers"
    for dtype in narrower.get(want.dtype, ()):
        if (off <= max(2, len(parts)) * torch.finfo(dtype).eps * size).all():
            name = str(dtype).removeprefix("torch.")
            return f"right to the digits that {name} has: {what} went through that dtype"
    return ""


def _is(got: torch.Tensor, other: torch.Tensor) -> bool:
    return got.shape == other.reshape(-1).shape and bool(
        (got == other.reshape(-1).to(got.dtype)).all()
    )


def _close(got: torch.Tensor, other: torch.Tensor, want: Reference) -> bool:
    return bool(((got.double() - other.double()).abs() <= 2 * want.tolerance).all())


def _mistakes(want: Reference) -> Iterator[tuple[str, torch.Tensor]]:
    """What the commonest mistakes give on this very input, each with what to say of it."""
    if len(want.parts) > 1:
        parts = torch.stack([part.double() for part in want.parts.values()])
        yield "this is the largest of the ranks' values, and not their sum", parts.amax(0)
        yield "this is the smallest of the ranks' values, and not their sum", parts.amin(0)
        yield "this is the product of the ranks' values", parts.prod(0)
        yield "this is the sum of the values' sizes, without their signs", parts.abs().sum(0)
        yield "this is the sum of their squares", parts.square().sum(0)
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        if want.dtype.is_floating_point and torch.finfo(dtype).eps > torch.finfo(want.dtype).eps:
            name = str(dtype).removeprefix("torch.")
            rounded = want.value.to(dtype).double()
            yield f"right to the digits that {name} has: something went through that dtype", rounded


def _order(got: torch.Tensor, want: Reference) -> str:
    """The right numbers in another order; "" if they are not the right numbers."""
    value, n = want.value, want.value.numel()
    if n < 2 or len(value.unique()) < 2:
        return ""
    if not _close(got.sort().values, value.sort().values, want):
        return ""
    if _close(got, value.flip(0), want):
        return "these are the right numbers, from the last to the first"
    turns = [turn for turn in range(1, min(n, 64)) if _close(got, value.roll(turn), want)]
    if turns:
        return f"these are the right numbers, turned by {turns[0]}"
    for rows in range(2, n):
        if n % rows == 0 and _close(got, value.view(rows, -1).t().reshape(-1), want):
            return f"these are the right numbers, transposed ({rows} rows became columns)"
    return "these are the right numbers in another order"


def _ratio(got: torch.Tensor, want: Reference) -> str:
    """A constant factor between the two."""
    value, tolerance, n = want.value.double(), want.tolerance, len(want.parts) or 1
    for factor in sorted({n, 2, 3, 4}):
        if factor > 1 and ((got - value * factor).abs() <= factor * tolerance).all():
            return f"exactly {_times(factor)} the reference: " + (
                "you summed, and an average is expected"
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
        return "the sign is wrong"
    return ""


def _mix(got: torch.Tensor, want: Reference, wrong: torch.Tensor, rank: int) -> str:
    """Whose parts a wrong sum is made of, if each is in it 0, 1 or 2 times."""
    owners = list(want.parts)
    if len(owners) < 2 or want.average or want.dtype == torch.bfloat16:
        return ""  # bfloat16 rounds so coarsely that several mixes fit
    exact = torch.float64 if want.dtype.is_floating_point else torch.int64
    got, tolerance = got[wrong][:_SAMPLE].to(exact), 2 * want.tolerance[wrong][:_SAMPLE]
    parts = torch.stack([part[wrong][:_SAMPLE] for part in want.parts.values()]).to(exact)
    fits = []
    for counts in _mixes(len(owners)):
        mix = (parts * torch.tensor(counts, dtype=exact)[:, None]).sum(0)
        if ((mix - got).abs() <= tolerance).all():
            fits.append(counts)
    fits.sort(key=_oddity)
    if not fits or (len(fits) > 1 and _oddity(fits[0]) == _oddity(fits[1])):
        return ""
    return _told(dict(zip(owners, fits[0], strict=True)), rank)


def _mixes(n: int) -> list[tuple[int, ...]]:
    """How often each of n parts may be in a wrong sum; for many ranks only the plain cases."""
    if n <= _LEGIBLE_PARTS:
        mixes = set(itertools.product((0, 1, 2), repeat=n))
    else:
        mixes = {tuple(c if r == i else 1 for r in range(n)) for i in range(n) for c in (0, 2)}
        mixes |= {tuple(int(r == i) for r in range(n)) for i in range(n)}
    return sorted(mixes - {(1,) * n, (0,) * n, (2,) * n})


def _oddity(counts: tuple[int, ...]) -> int:
    return sum(count != 1 for count in counts)


def _told(counts: Mapping[int, int], rank: int) -> str:
    missing = [owner for owner, count in counts.items() if count == 0]
    twice = [owner for owner, count in counts.items() if count == 2]
    if len(missing) == len(counts) - 1 and not twice:
        (alone,) = counts.keys() - set(missing)
        whose = "still the rank's own" if alone == rank else f"rank {alone}'s"
        return f"this is {whose} input, with nothing added"
    phrases = []
    if missing:
        phrases.append(f"the part of {ranks(missing)} is missing")
    if twice:
        phrases.append(f"the part of {ranks(twice)} is counted twice")
    return ", and ".join(phrases)


def _where(wrong: torch.Tensor) -> str:
    """ "only elements 4 to 6 of 7 are wrong (the last ones)", or "" when all are."""
    if wrong.all():
        return ""
    indices = wrong.nonzero().reshape(-1).tolist()
    first, last = indices[0], indices[-1]
    if len(indices) == 1:
        return f"only element {first} of {len(wrong)} is wrong"
    if len(indices) == last - first + 1:
        end = " (the last ones)" if last == len(wrong) - 1 else ""
        return f"only elements {first} to {last} of {len(wrong)} are wrong{end}"
    return f"{len(indices)} of {len(wrong)} elements are wrong"


def _times(factor: int) -> str:
    return "twice" if factor == 2 else f"{factor} times"
