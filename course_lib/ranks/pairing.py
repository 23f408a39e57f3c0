"""Messages with one end: a receive without its send, or a circle of ranks that wait."""

from course_lib.observe import CommEvent, Trace
from course_lib.ranks.diagnosis import Diagnosis
from course_lib.ranks.wording import and_list, describe, ordinal, ranks_text, size_text, times

_POINT_TO_POINT = ("send", "recv")


def pair_messages(
    states: dict[int, str], trace: Trace, blocked: dict[int, CommEvent]
) -> list[Diagnosis]:
    waits_for = {
        rank: event.peer
        for rank, event in blocked.items()
        if event.op in _POINT_TO_POINT and event.peer is not None
    }
    mates = {id(one): other for pair in trace.match().pairs for one, other in (pair, pair[::-1])}
    found, told = [], set()
    for rank in sorted(waits_for):
        if rank in told:
            continue
        event = blocked[rank]
        circle = _circle(rank, waits_for)
        told.update(circle)
        if circle:
            found.append(_in_a_circle(circle, blocked, trace))
        elif (mate := mates.get(id(event))) and mate.nbytes != event.nbytes:
            found.append(_sizes(event, mate))
        elif event.peer not in waits_for:
            # Else the peer waits for a message itself, and why is said there.
            found.append(_one_ended(rank, event, states, blocked, trace))
    return found


def _circle(start: int, waits_for: dict[int, int]) -> list[int]:
    """The ranks that wait for each other in a ring from `start` back to it; [] if there is none."""
    path, rank = [start], waits_for.get(start)
    while rank is not None and rank not in path:
        path.append(rank)
        rank = waits_for.get(rank)
    return path if rank == start else []


def _in_a_circle(circle: list[int], blocked: dict[int, CommEvent], trace: Trace) -> Diagnosis:
    operations = {blocked[rank].op for rank in circle}
    everyone = ranks_text(circle)
    if len(circle) == 1:
        return Diagnosis(
            f"rank {circle[0]} waits for a message of its own.",
            "A rank cannot send to itself: copy the tensor instead.",
        )
    if operations == {"send"}:
        return Diagnosis(
            f"{everyone} all send first. A send ends when the other rank receives, and every "
            "receive comes after a send that cannot end.",
            "Let one of them receive before it sends, or start the send with dist.isend and wait "
            "for it after the receive.",
        )
    if operations == {"recv"}:
        strays = {e.rank: e.peer for e in trace.match().unmatched_sends if e.rank in circle}
        if strays:
            return _crossed(circle, blocked, strays)
        return Diagnosis(
            f"{everyone} all wait to receive first, so that nobody comes to send.",
            "Let one of them send before it receives.",
        )
    pairs = [(rank, blocked[rank]) for rank in circle]
    for rank, event in pairs:
        partner = blocked[event.peer]
        if event.op == "send" and partner.op == "recv" and partner.peer == rank:
            if event.tag != partner.tag:
                return Diagnosis(
                    f"rank {rank} sends with tag {event.tag}, rank {event.peer} receives with tag "
                    f"{partner.tag}; a message is only received by a call with the same tag.",
                    "Use the same tag in both calls.",
                )
            return _sizes(event, partner)
    return Diagnosis(
        f"{everyone} wait for each other in a circle: "
        + "; ".join(f"rank {rank} waits {describe(event)}" for rank, event in pairs)
        + ".",
        "Draw who sends to whom, and let one of them do its receive first.",
    )


def _crossed(circle: list[int], blocked: dict[int, CommEvent], strays: dict[int, int]) -> Diagnosis:
    rank = next((r for r in circle if blocked[r].peer in strays), circle[0])
    peer = blocked[rank].peer
    astray = f"rank {peer} has sent to rank {strays[peer]}" if peer in strays else "nothing comes"
    return Diagnosis(
        f"{ranks_text(circle)} wait for messages that went elsewhere: rank {rank} waits for rank "
        f"{peer}, but {astray}.",
        "Sender and receiver must name each other: if every rank r sends to r + 1, it receives "
        "from r - 1.",
    )


def _sizes(one: CommEvent, other: CommEvent) -> Diagnosis:
    send, recv = (one, other) if one.op == "send" else (other, one)
    return Diagnosis(
        f"rank {send.rank} sends {size_text(send)} to rank {recv.rank}, "
        f"which receives into {size_text(recv)}.",
        "Receive into a tensor of the same shape and dtype as the one that is sent.",
        mismatch=True,
    )


def _one_ended(
    rank: int,
    event: CommEvent,
    states: dict[int, str],
    blocked: dict[int, CommEvent],
    trace: Trace,
) -> Diagnosis:
    peer, other = event.peer, "recv" if event.op == "send" else "send"
    mine = [e for e in trace.of(rank) if (e.op, e.peer, e.tag) == (event.op, peer, event.tag)]
    theirs = [e for e in trace.of(peer) if e.op == other and e.peer in (rank, None)]
    place = next(i for i, e in enumerate(mine) if e is event)
    same_tag = [e for e in theirs if e.tag == event.tag]
    if peer in blocked:
        doing = f"rank {peer} waits {describe(blocked[peer])}"
    else:
        doing = f"rank {peer} {states[peer]}"
    if other == "send":
        why = f"rank {rank} waits for a message from rank {peer}, but {doing}"
        count = f"rank {peer} has sent it {times(len(theirs))}"
        remedy = "Every recv needs a send on the other side: the same pair of ranks, as many times."
    else:
        why = f"rank {rank} sends to rank {peer}, but {doing}"
        count = f"rank {peer} has received from it {times(len(theirs))}"
        remedy = "Every send needs a recv on the other side: the same pair of ranks, as many times."
    tags = sorted({e.tag for e in theirs} - {event.tag})
    if tags and not same_tag:
        return Diagnosis(
            f"{why}. The tags differ: {event.tag} here, {and_list(tags)} there.",
            "Use the same tag in both calls.",
        )
    wanted = "receive" if event.op == "recv" else "send"
    return Diagnosis(f"{why}; {count}, and this is its {ordinal(place + 1)} {wanted}.", remedy)
