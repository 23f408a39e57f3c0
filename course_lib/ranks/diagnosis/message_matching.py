"""Which sends and receives belong together, and why the ranks in them wait."""

from collections import defaultdict

from course_lib.observe import CommEvent, Trace
from course_lib.observe.wait_for_graph import wait_cycle

from .cause import Cause
from .deadlock_cause import deadlock, waits_for_itself
from .size_mismatch import once_a_line, size_mismatch
from .unmatched_message import UnmatchedMessage, explain, look_across

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
    found = [size_mismatch(*pair) for pair in once_a_line(unfit)]
    told = {end.rank for pair in unfit for end in pair}
    alone = []
    unmatched: dict[UnmatchedMessage, list[int]] = defaultdict(list)
    for rank in sorted(waits_for):
        if rank in told or shifted & {rank, waits_for[rank]}:
            continue
        event = blocked[rank]
        circle = wait_cycle(rank, waits_for)
        told.update(circle)
        if circle == [rank]:
            alone.append(rank)
        elif circle:
            found.append(deadlock(circle, blocked, trace))
        elif (mate := mates.get(id(event))) and mate.nbytes != event.nbytes:
            found.append(size_mismatch(event, mate))
        elif event.peer not in waits_for:
            # Else the peer waits for a message itself, and why is said there.
            unmatched[look_across(rank, event, states, blocked, trace)].append(rank)
    if alone:
        found.append(waits_for_itself(alone))
    return found + [explain(message, them) for message, them in unmatched.items()]
