"""A message that does not fit: its send and its receive name tensors of different sizes."""

from course_lib.observe import CommEvent
from course_lib.ranks.source_location import location_of
from course_lib.ranks.wording import bytes_text

from .cause import Cause

Pair = tuple[CommEvent, CommEvent]
"""A send and its receive."""


def once_a_line(pairs: list[Pair]) -> list[Pair]:
    """The first pair of each two lines: ranks run the same ones."""
    lines: dict[tuple, Pair] = {}
    for send, recv in pairs:
        lines.setdefault((send.where[:1], recv.where[:1]), (send, recv))
    return list(lines.values())


def size_mismatch(one: CommEvent, other: CommEvent) -> Cause:
    """The two ends of a message, in whichever order."""
    send, recv = (one, other) if one.op == "send" else (other, one)
    return Cause(
        f"rank {send.rank} sends {bytes_text(send)} to rank {recv.rank}{_at(send)}; "
        f"rank {recv.rank} receives into {bytes_text(recv)}{_at(recv)}.",
        "Receive into a tensor of the same shape and dtype as the one that is sent.",
        mismatch=True,
    )


def _at(event: CommEvent) -> str:
    return f" in {location_of(event.where[0])}" if event.where else ""
