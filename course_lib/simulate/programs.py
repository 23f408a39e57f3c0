"""What each rank did, step by step, as a recording tells it: compute, issue, wait."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from course_lib.observe.timeline import COMPUTE, read_label

from .transfers import Event, Recording, describe


class Computed(Protocol):
    """A stretch of computation on one rank: `seconds` of processor time from time `start` on.

    The time it took on the wall may be longer, where ranks shared a processor. A `name` such as
    `F0.3` is read as a pipeline's operation. `observe.ComputeSpan` is one.
    """

    rank: int
    name: str
    start: float
    seconds: float


class Point(NamedTuple):
    """A step of a rank's program: "issue" or "wait" for an event, or "compute" for a while."""

    time: float
    action: str
    event: Event | None = None
    seconds: float = 0
    what: Any = None


def read_programs(trace: Recording, compute: Iterable[Computed] | None) -> list[list[Point]]:
    """Each rank's steps in the order of the recording."""
    programs: list[list[Point]] = [[] for _ in range(trace.world_size)]
    for event in sorted(trace.events, key=lambda event: event.n):
        programs[event.rank].append(Point(event.issued, "issue", event))
        if event.waited is not None and event.done is None:
            raise ValueError(f"{describe(event)} was never over: this run did not finish")
        if event.done is not None:  # without a wait to be seen, it was found to be over just then
            waited = event.done if event.waited is None else event.waited
            programs[event.rank].append(Point(waited, "wait", event))
    if compute is None:
        compute = trace.compute or None
    if compute is None:
        start = min((event.issued for event in trace.events), default=0)
        return [_fill_gaps(program, start) for program in programs]
    for span in compute:
        if not 0 <= span.rank < trace.world_size:
            raise ValueError(f"computation of rank {span.rank} in a world of {trace.world_size}")
        if span.seconds < 0:
            raise ValueError(f"rank {span.rank} computes {span.name} for {span.seconds} seconds")
        point = Point(span.start, "compute", None, span.seconds, read_label(span.name))
        programs[span.rank].append(point)
    return [sorted(program, key=lambda point: point.time) for program in programs]


def _fill_gaps(program: list[Point], start: float) -> list[Point]:
    """Compute whenever not waiting, from `start` on."""
    filled, now = [], start
    for point in sorted(program, key=lambda point: point.time):
        if point.time > now:
            filled.append(Point(now, "compute", None, point.time - now, COMPUTE))
        filled.append(point)
        now = max(now, point.time if point.action == "issue" else point.event.done)
    return filled
