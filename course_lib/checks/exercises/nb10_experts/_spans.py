"""What a rank sends in the forward and in the backward pass of a case."""

from course_lib.checks.exercise import Observation
from course_lib.observe import Trace


def sent_in(observation: Observation, rank: int, phase: str) -> int:
    """Bytes that `rank` sent while the label `phase` was open."""
    trace = observation.trace
    events = [event for event in trace.events if phase in event.spans]
    return int(Trace(trace.world_size, events).traffic().sent[rank])
