"""Why the ranks do not get on: a pure function of what they recorded.

Every rank has left a list of what it issued. Two things can then be wrong. The collectives of a
group do not line up: at some place one rank calls something else, or nothing. Or a message has only
one end: a receive without its send, or two ranks that each wait for the other to come first.
"""

from collections import defaultdict
from dataclasses import dataclass

from course_lib.observe import CommEvent, Trace

_POINT_TO_POINT = ("send", "recv")


@dataclass(frozen=True)
class Diagnosis:
    """One sentence of cause and one of remedy.

    `mismatch` tells calls that do not fit together (which gloo answers by a hang or by aborting the
    process, as it comes) from calls whose other end is missing.
    """

    why: str
    remedy: str
    mismatch: bool = False


def diagnose(states: dict[int, str], trace: Trace) -> list[Diagnosis]:
    """Explain a run that is stuck or was torn down by gloo, most telling cause first.

    `states` says of every rank what it does now, as the end of a sentence about it: "has returned",
    "raised ValueError", "was killed by SIGKILL", "is still running"; "" for a rank that waits in a
    communication.
    """
    blocked = {rank: event for rank in states if (event := trace.waiting(rank))}
    found = _collectives(states, trace, blocked)
    found += _messages(states, trace, blocked)
    return found


def describe(event: CommEvent) -> str:
    """What a rank is doing, as the rest of "rank 0 waits ..."."""
    if event.op == "send":
        return f"to send {_size(event)} to rank {event.peer}"
    if event.op == "recv":
        source = "any rank" if event.peer is None else f"rank {event.peer}"
        return f"to receive {_size(event)} from {source}"
    return f"in {_call(event)}"


def and_list(items: list) -> str:
    """1, 2 and 3"""
    words = [str(item) for item in items]
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def ranks_text(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {and_list(sorted(ranks))}"


def _size(event: CommEvent) -> str:
    shape = "x".join(map(str, event.shapes[0])) if event.shapes and event.shapes[0] else "1"
    return f"{shape} {event.dtype}"


def _call(event: CommEvent) -> str:
    if event.op == "barrier":
        return "barrier"
    root = "" if event.peer is None else f", root {event.peer}"
    return f"{event.op} of {_size(event)}{root}"


def _ordinal(n: int) -> str:
    suffix = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"


# ---------------------------------------------------------------------------------------------
# collectives


def _collectives(
    states: dict[int, str], trace: Trace, blocked: dict[int, CommEvent]
) -> list[Diagnosis]:
    sequences: dict[tuple[int, ...], dict[int, list[CommEvent]]] = defaultdict(dict)
    for rank in states:
        for event in trace.of(rank):
            if event.op not in _POINT_TO_POINT:
                sequences[event.ranks].setdefault(rank, []).append(event)
    found = []
    for group, by_rank in sequences.items():
        found += _out_of_step(group, by_rank, states, blocked)
    return found


def _out_of_step(
    group: tuple[int, ...],
    by_rank: dict[int, list[CommEvent]],
    states: dict[int, str],
    blocked: dict[int, CommEvent],
) -> list[Diagnosis]:
    longest = max(map(len, by_rank.values()))
    for index in range(longest):
        here = {r: events[index] for r, events in by_rank.items() if index < len(events)}
        if difference := _difference(here):
            return [_mismatch(index, here, *difference)]
        absent = [rank for rank in group if rank not in here]
        waiting = [rank for rank, event in here.items() if blocked.get(rank) is event]
        if absent and waiting:
            return [_missing(here[waiting[0]], waiting, absent, states, blocked)]
    return []


def _difference(here: dict[int, CommEvent]) -> tuple[str, str] | None:
    """In what the calls at one place differ, and what to do about it; None if they agree."""
    events = list(here.values())
    operations = {event.op for event in events}
    if len(operations) > 1:
        return "operation", (
            "Every rank of a group must call the same collectives in the same order: look for an "
            "`if` on the rank around one of these lines."
        )
    if len({event.peer for event in events}) > 1:
        return (
            "root",
            "Every rank must name the same root (src or dst), also the ranks that receive.",
        )
    if len({event.reduce_op for event in events}) > 1:
        return "reduction", "Every rank must ask for the same reduction."
    if len({event.dtype for event in events}) > 1:
        return "dtype", "Gloo compares bytes, not types: convert the tensors to one dtype first."
    if operations != {"all_to_all"} and len({event.nbytes for event in events}) > 1:
        return "size", (
            "The tensors need the same shape on every rank. Print tensor.shape just before the "
            "call; unequal pieces come from sizes that the world size does not divide."
        )
    return None


def _mismatch(index: int, here: dict[int, CommEvent], what: str, remedy: str) -> Diagnosis:
    alike: dict[str, list[int]] = defaultdict(list)
    for rank, event in here.items():
        reduction = f" ({event.reduce_op})" if what == "reduction" else ""
        alike[_call(event) + reduction].append(rank)
    calls = "; ".join(f"{ranks_text(ranks)} called {call}" for call, ranks in alike.items())
    why = f"the {_ordinal(index + 1)} collective does not have the same {what} everywhere: {calls}."
    return Diagnosis(why, remedy, mismatch=True)


def _missing(
    event: CommEvent,
    waiting: list[int],
    absent: list[int],
    states: dict[int, str],
    blocked: dict[int, CommEvent],
) -> Diagnosis:
    wait = "waits" if len(waiting) == 1 else "wait"
    missing = []
    for rank in absent:
        if rank in blocked:
            missing.append(f"rank {rank} waits {describe(blocked[rank])}")
        else:
            missing.append(f"rank {rank} {states[rank]}")
    why = (
        f"{ranks_text(waiting)} {wait} in {event.op} for all ranks of the group, "
        f"but {and_list(missing)}."
    )
    return Diagnosis(
        why, f"Every rank of the group has to call {event.op}, also when it has nothing to add."
    )


# ---------------------------------------------------------------------------------------------
# messages


def _messages(
    states: dict[int, str], trace: Trace, blocked: dict[int, CommEvent]
) -> list[Diagnosis]:
    waits_for = {
        rank: event.peer
        for rank, event in blocked.items()
        if event.op in _POINT_TO_POINT and event.peer is not None
    }
    found, told = [], set()
    for rank in sorted(waits_for):
        if rank in told:
            continue
        circle = _circle(rank, waits_for)
        told.update(circle)
        if circle:
            found.append(_in_a_circle(circle, blocked, trace))
        else:
            found.append(_one_ended(rank, blocked[rank], states, blocked, trace))
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


def _sizes(send: CommEvent, recv: CommEvent) -> Diagnosis:
    return Diagnosis(
        f"rank {send.rank} sends {_size(send)} to rank {recv.rank}, "
        f"which receives into {_size(recv)}.",
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
    if place < len(same_tag) and same_tag[place].nbytes != event.nbytes:
        pair = (event, same_tag[place])
        return _sizes(*(pair if event.op == "send" else pair[::-1]))

    if peer in blocked:
        doing = f"rank {peer} waits {describe(blocked[peer])}"
    else:
        doing = f"rank {peer} {states[peer]}"
    if other == "send":
        why = f"rank {rank} waits for a message from rank {peer}, but {doing}"
        count = f"rank {peer} has sent it {_times(len(theirs))}"
        remedy = "Every recv needs a send on the other side: the same pair of ranks, as many times."
    else:
        why = f"rank {rank} sends to rank {peer}, but {doing}"
        count = f"rank {peer} has received from it {_times(len(theirs))}"
        remedy = "Every send needs a recv on the other side: the same pair of ranks, as many times."
    tags = sorted({e.tag for e in theirs} - {event.tag})
    if tags and not same_tag:
        return Diagnosis(
            f"{why}. The tags differ: {event.tag} here, {and_list(tags)} there.",
            "Use the same tag in both calls.",
        )
    wanted = "receive" if event.op == "recv" else "send"
    return Diagnosis(f"{why}; {count}, and this is its {_ordinal(place + 1)} {wanted}.", remedy)


def _times(count: int) -> str:
    return {0: "nothing", 1: "one message"}.get(count, f"{count} messages")
