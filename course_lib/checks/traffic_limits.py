"""Limits on what an answer sends: counted bytes, peers and messages, never times.

Each returns a `Finding` that names both numbers, or None. They come after the values were found
right: their messages say so.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from course_lib.text import listed

from .exercise import Finding, Observation

_forgiven = ContextVar("_forgiven", default=False)


@contextmanager
def excess_forgiven() -> Iterator[None]:
    """Inside, too much is no finding; too little still is, since then the data came another way."""
    before = _forgiven.set(True)
    try:
        yield
    finally:
        _forgiven.reset(before)


def sent(
    observation: Observation, rank: int, least: int, most: int, rule: str, more: str = ""
) -> Finding | None:
    """Bytes that `rank` sent, between `least` and `most`.

    rule: where the numbers come from: "each rank sends 2(n-1)/n of the tensor".
    more: the likely cause when it is too much.
    """
    return _bytes(observation.trace.traffic().sent[rank], "sent", rank, least, most, rule, more)


def received(
    observation: Observation, rank: int, least: int, most: int, rule: str, more: str = ""
) -> Finding | None:
    """Bytes that `rank` received; as `sent`."""
    count = observation.trace.traffic().received[rank]
    return _bytes(count, "received", rank, least, most, rule, more)


def _bytes(
    count: int, verb: str, rank: int, least: int, most: int, rule: str, more: str
) -> Finding | None:
    too_much = count > most
    if least <= count <= most or (too_much and _forgiven.get()):
        return None
    if count == 0:
        likely = f"the result is right, but this rank {verb} nothing: {rule}"
    elif count < least:
        likely = (
            f"the result is right, but this rank {verb} too little to be doing its part: {rule}"
        )
    else:
        likely = f"the result is right, but this rank {verb} too much: {rule}"
        likely += f". {more}" if more else ""
    wanted = f"{least}" if least == most else f"{least} to {most}"
    expected, got = f"{wanted} bytes {verb}", f"{count} bytes {verb}"
    return Finding(likely, rank, expected=expected, got=got, promise=too_much)


def peers(
    observation: Observation, rank: int, allowed: Collection[int], rule: str
) -> Finding | None:
    """Ranks that `rank` sent to: only `allowed` ones."""
    row = observation.trace.traffic().matrix[rank]
    for peer, count in enumerate(row):
        if count and peer not in allowed and not _forgiven.get():
            return Finding(
                f"the result is right, but {rule}",
                rank,
                expected=f"sends only to {ranks(allowed)}",
                got=f"rank {rank} sent {int(count)} bytes to rank {peer}",
                promise=True,
            )
    return None


def messages(observation: Observation, rank: int, count: int, rule: str) -> Finding | None:
    """Messages that `rank` sent: exactly `count`."""
    own = observation.trace.traffic().messages[rank]
    if own == count or (own > count and _forgiven.get()):
        return None
    return Finding(
        f"the result is right, but this rank sent too {'many' if own > count else 'few'} "
        f"messages: {rule}",
        rank,
        expected=f"{count} messages",
        got=f"{own} messages",
        promise=own > count,
    )


def ranks(numbers: Iterable[int]) -> str:
    """ "rank 2", "ranks 0, 1 and 3"."""
    numbers = sorted(numbers)
    return f"rank{'s' * (len(numbers) != 1)} {listed(numbers)}"
