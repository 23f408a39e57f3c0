"""What each rank did, step by step, as a recording tells it: compute, issue, wait."""

from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from course_lib.observe.timeline import COMPUTE, read_label

from .recorded_transfers import Event, Recording, describe


class Computed(Protocol):
    """A stretch of computation on one rank: `seconds` of processor time from time `start` on.

    The time it took on the wall may be longer, where ranks shared a processor. A `name` such as
    `F0.3` is read as a pipeline's operation. `observe.ComputeSpan` is one.
    """

    rank: int
    name: str
    start: float
    seconds: float


class Call(NamedTuple):
    """A step of a rank's program: it issues a communication, or waits for it `until` it is over."""

    time: float
    action: str  # "issue" or "wait"
    event: Event
    until: float


class Work(NamedTuple):
    """A step of a rank's program: it computes for some seconds."""

    time: float
    seconds: float
    what: Any


Program = list[Call | Work]


def read_programs(trace: Recording, compute: Iterable[Computed] | None) -> list[Program]:
    """Each rank's steps in the order of the recording."""
    programs: list[Program] = [[] for _ in range(trace.world_size)]
    for event in sorted(trace.events, key=lambda event: event.n):
        programs[event.rank].append(Call(event.issued, "issue", event, event.issued))
        if event.waited is not None and event.done is None:
            raise ValueError(f"{describe(event)} was never over: this run did not finish")
        if event.done is not None:  # without a wait to be seen, it was found to be over just then
            waited = event.done if event.waited is None else event.waited
            programs[event.rank].append(Call(waited, "wait", event, event.done))
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
        work = Work(span.start, span.seconds, read_label(span.name))
        programs[span.rank].append(work)
    return [sorted(program, key=lambda step: step.time) for program in programs]


def _fill_gaps(program: Program, start: float) -> Program:
    """Compute whenever not waiting, from `start` on."""
    filled: Program = []
    now = start
    for step in sorted(program, key=lambda step: step.time):
        if step.time > now:
            filled.append(Work(now, step.time - now, COMPUTE))
        filled.append(step)
        now = max(now, step.until if isinstance(step, Call) else step.time)
    return filled
