"""Why the ranks are stuck: a pure function of what they recorded.

Every rank has left a list of what it issued. Two things can then be wrong: the collectives of a
group do not line up, or a message has only one end.
"""

from course_lib.observe import CommEvent, Trace

from .cause import Cause
from .message_matching import pair_messages
from .mismatched_collectives import compare_collectives


def diagnose(states: dict[int, str], trace: Trace) -> list[Cause]:
    """Explain a run that is stuck or was torn down by gloo, most telling cause first.

    `states` says of every rank what it does now, as the end of a sentence about it: "has returned",
    "raised ValueError", "was killed by SIGKILL", "is still running"; "" for a rank that waits in a
    communication.
    """
    blocked = {rank: event for rank in states if (event := _held_up(rank, states[rank], trace))}
    found = compare_collectives(states, trace, blocked)
    found += pair_messages(states, trace, blocked)
    return found


def _held_up(rank: int, state: str, trace: Trace) -> CommEvent | None:
    """What `rank` waits in, or was torn out of by gloo before it came to wait."""
    if state.startswith(("was killed", "lost its connection")):
        return next(iter(trace.unfinished(rank)[-1:]), None)
    return trace.waiting(rank)
