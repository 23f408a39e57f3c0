"""A deadlock: ranks that wait for each other in a circle, so that none of them can go on."""

from course_lib.observe import CommEvent, Trace
from course_lib.ranks.wording import describe, plural, ranks_text

from .cause import Cause
from .size_mismatch import size_mismatch


def deadlock(circle: list[int], blocked: dict[int, CommEvent], trace: Trace) -> Cause:
    """Why the ranks of a `circle` wait, each for the next, and what breaks it."""
    operations = {blocked[rank].op for rank in circle}
    everyone, how_many = ranks_text(circle), "both" if len(circle) == 2 else "all"
    if operations == {"send"}:
        return Cause(
            f"{everyone} {how_many} send first. A send ends when the other rank receives, and "
            "every receive comes after a send that cannot end.",
            "Let one of them receive before it sends, or start the send with dist.isend and wait "
            "for it after the receive.",
        )
    if operations == {"recv"}:
        lost = trace.match().unmatched_sends
        strays = {e.rank: e.peer for e in lost if e.rank in circle and e.peer is not None}
        if strays:
            return _crossed(circle, blocked, strays)
        return Cause(
            f"{everyone} {how_many} wait to receive first, so that nobody comes to send.",
            "Let one of them send before it receives.",
        )
    pairs = [(rank, blocked[rank]) for rank in circle]
    for rank, event in pairs:
        assert event.peer is not None
        partner = blocked[event.peer]
        if event.op == "send" and partner.op == "recv" and partner.peer == rank:
            if event.tag != partner.tag:
                return Cause(
                    f"rank {rank} sends with tag {event.tag}, rank {event.peer} receives with tag "
                    f"{partner.tag}; a message is only received by a call with the same tag.",
                    "Use the same tag in both calls.",
                )
            if event.nbytes != partner.nbytes:
                return size_mismatch(event, partner)
    return Cause(
        f"{everyone} wait for each other in a circle: "
        + "; ".join(f"rank {rank} waits {describe(event)}" for rank, event in pairs)
        + ".",
        "Draw who sends to whom, and let one of them do its receive first.",
    )


def waits_for_itself(ranks: list[int]) -> Cause:
    """The smallest circle: a rank that waits for its own message."""
    one = len(ranks) == 1
    return Cause(
        f"{ranks_text(ranks)} {plural('waits', ranks)} for "
        f"{'a message of its' if one else 'messages of their'} own.",
        "A rank cannot send to itself. Put an `if` on the rank before the receive; what a rank has "
        "already it can copy.",
    )


def _crossed(circle: list[int], blocked: dict[int, CommEvent], strays: dict[int, int]) -> Cause:
    rank = next((r for r in circle if blocked[r].peer in strays), circle[0])
    peer = blocked[rank].peer
    assert peer is not None
    astray = f"rank {peer} has sent to rank {strays[peer]}" if peer in strays else "nothing comes"
    return Cause(
        f"{ranks_text(circle)} wait for messages that went elsewhere: rank {rank} waits for rank "
        f"{peer}, but {astray}.",
        "Sender and receiver must name each other: if every rank r sends to r + 1, it receives "
        "from r - 1.",
    )
