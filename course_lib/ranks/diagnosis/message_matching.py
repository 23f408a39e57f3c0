"""Messages with one end: a receive without its send, or a circle of ranks that wait."""

from collections import defaultdict

from course_lib.observe import CommEvent, Trace
from course_lib.ranks.source_location import location_of
from course_lib.ranks.wording import bytes_text, describe, plural, ranks_text

from .cause import Cause
from .unmatched_message import UnmatchedMessage, explain, look_across

Pair = tuple[CommEvent, CommEvent]
"""A send and its receive."""

# After one of these warnings the k-th message sent is no longer the k-th that is received.
SHIFTS_MESSAGES = ("never_waited", "waited_twice")
_POINT_TO_POINT = ("send", "recv")


def pair_messages(
    states: dict[int, str], trace: Trace, blocked: dict[int, CommEvent]
) -> list[Cause]:
    waits_for = {
        rank: event.peer
        for rank, event in blocked.items()
        if event.op in _POINT_TO_POINT and event.peer is not None
    }
    shifted = {warning.rank for warning in trace.warnings if warning.kind in SHIFTS_MESSAGES}
    pairs = [pair for pair in trace.match().pairs if not shifted & {end.rank for end in pair}]
    mates = {id(one): other for pair in pairs for one, other in (pair, pair[::-1])}
    # Gloo aborts a rank for a message that does not fit, this one or another.
    unfit = [(s, r) for s, r in pairs if r.done is None and s.nbytes > r.nbytes]
    found = [_sizes(*pair) for pair in _once_a_line(unfit)]
    told = {end.rank for pair in unfit for end in pair}
    alone = []
    unmatched: dict[UnmatchedMessage, list[int]] = defaultdict(list)
    for rank in sorted(waits_for):
        if rank in told or shifted & {rank, waits_for[rank]}:
            continue
        event = blocked[rank]
        circle = _circle(rank, waits_for)
        told.update(circle)
        if circle == [rank]:
            alone.append(rank)
        elif circle:
            found.append(_in_a_circle(circle, blocked, trace))
        elif (mate := mates.get(id(event))) and mate.nbytes != event.nbytes:
            found.append(_sizes(event, mate))
        elif event.peer not in waits_for:
            # Else the peer waits for a message itself, and why is said there.
            unmatched[look_across(rank, event, states, blocked, trace)].append(rank)
    if alone:
        found.append(_of_its_own(alone))
    return found + [explain(message, them) for message, them in unmatched.items()]


def _circle(start: int, waits_for: dict[int, int]) -> list[int]:
    """The ranks that wait for each other in a ring from `start` back to it; [] if there is none."""
    path, rank = [start], waits_for.get(start)
    while rank is not None and rank not in path:
        path.append(rank)
        rank = waits_for.get(rank)
    return path if rank == start else []


def _of_its_own(ranks: list[int]) -> Cause:
    one = len(ranks) == 1
    return Cause(
        f"{ranks_text(ranks)} {plural('waits', ranks)} for "
        f"{'a message of its' if one else 'messages of their'} own.",
        "A rank cannot send to itself. Put an `if` on the rank before the receive; what a rank has "
        "already it can copy.",
    )


def _in_a_circle(circle: list[int], blocked: dict[int, CommEvent], trace: Trace) -> Cause:
    operations = {blocked[rank].op for rank in circle}
    everyone = ranks_text(circle)
    if operations == {"send"}:
        return Cause(
            f"{everyone} all send first. A send ends when the other rank receives, and every "
            "receive comes after a send that cannot end.",
            "Let one of them receive before it sends, or start the send with dist.isend and wait "
            "for it after the receive.",
        )
    if operations == {"recv"}:
        lost = trace.match().unmatched_sends
        strays = {e.rank: e.peer for e in lost if e.rank in circle and e.peer is not None}
        if strays:
            return _crossed(circle, blocked, strays)
        return Cause(
            f"{everyone} all wait to receive first, so that nobody comes to send.",
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
                return _sizes(event, partner)
    return Cause(
        f"{everyone} wait for each other in a circle: "
        + "; ".join(f"rank {rank} waits {describe(event)}" for rank, event in pairs)
        + ".",
        "Draw who sends to whom, and let one of them do its receive first.",
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


def _once_a_line(pairs: list[Pair]) -> list[Pair]:
    """The first pair of each two lines: ranks run the same ones."""
    lines: dict[tuple, Pair] = {}
    for send, recv in pairs:
        lines.setdefault((send.where[:1], recv.where[:1]), (send, recv))
    return list(lines.values())


def _sizes(one: CommEvent, other: CommEvent) -> Cause:
    send, recv = (one, other) if one.op == "send" else (other, one)
    return Cause(
        f"rank {send.rank} sends {bytes_text(send)} to rank {recv.rank}{_at(send)}, "
        f"which receives into {bytes_text(recv)}{_at(recv)}.",
        "Receive into a tensor of the same shape and dtype as the one that is sent.",
        mismatch=True,
    )


def _at(event: CommEvent) -> str:
    return f" in {location_of(event.where[0])}" if event.where else ""
