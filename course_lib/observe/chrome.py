"""A recording in the Chrome trace format, for Perfetto (ui.perfetto.dev) or chrome://tracing.

Each rank is a process with lanes for its labels, for what it computes or waits for, and for its
communications, on as many lanes as were under way at once; an arrow leads from each send to its
receive, and memory is a curve. Times are those of the clock on the wall.

Format: "Trace Event Format", Google, 2016: complete events X, flows s and f, counters C, metadata
M; times in microseconds.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from course_lib.observe.events import CommEvent
from course_lib.observe.wording import name

if TYPE_CHECKING:
    from course_lib.observe.trace import Trace

_LABELS, _COMPUTE, _COMMUNICATION = 0, 1, 2


def chrome_events(trace: "Trace") -> list[dict[str, Any]]:
    """The `traceEvents` of the file."""
    start = min(
        (
            *(event.issued for event in trace.events),
            *(span.start for span in (*trace.compute, *trace.labels)),
            *(block.steps[0][0] for block in trace.blocks),
        ),
        default=0,
    )
    lanes = {}
    for rank in range(trace.world_size):
        lanes |= _lanes([event for event in trace.of(rank) if event.done is not None])
    made = [
        *_names(trace.world_size, lanes),
        *_spans(trace),
        *_communications(trace, lanes),
        *_arrows(trace, lanes),
        *_memory(trace),
    ]
    for event in made:
        if "ts" in event:
            event["ts"] = (event["ts"] - start) * 1e6
        if "dur" in event:
            event["dur"] *= 1e6
    return made


def _lanes(events: list[CommEvent]) -> dict[tuple[int, int], int]:
    """A lane for each event, such that none holds two at a time."""
    lanes, free_from = {}, []
    for event in sorted(events, key=lambda event: event.issued):
        lane = next((k for k, time in enumerate(free_from) if time <= event.issued), None)
        if lane is None:
            lane = len(free_from)
            free_from.append(0.0)
        free_from[lane] = event.done
        lanes[event.rank, event.n] = _COMMUNICATION + lane
    return lanes


def _names(world_size: int, lanes: dict[tuple[int, int], int]) -> Iterator[dict]:
    for rank in range(world_size):
        yield _meta(rank, 0, "process_name", f"rank {rank}")
        yield _meta(rank, _LABELS, "thread_name", "labels")
        yield _meta(rank, _COMPUTE, "thread_name", "computes or waits")
        for lane in sorted({lane for (of, _), lane in lanes.items() if of == rank}):
            yield _meta(rank, lane, "thread_name", "communication")


def _meta(rank: int, lane: int, kind: str, text: str) -> dict:
    return {"ph": "M", "pid": rank, "tid": lane, "name": kind, "args": {"name": text}}


def _spans(trace: "Trace") -> Iterator[dict]:
    for label in trace.labels:
        yield _slice(label.rank, _LABELS, label.name, label.start, label.end)
    for span in trace.compute:
        args = {"processor time, ms": span.seconds * 1e3}
        yield _slice(span.rank, _COMPUTE, span.name, span.start, span.end, args)


def _communications(trace: "Trace", lanes: dict[tuple[int, int], int]) -> Iterator[dict]:
    for event in trace.events:
        if event.done is None:
            continue
        args = {"bytes": event.nbytes, "dtype": event.dtype, "shapes": event.shapes}
        if event.where:
            line = event.where[0]
            args["line"] = f"{line.file}:{line.line} in {line.function}"
        lane = lanes[event.rank, event.n]
        yield _slice(event.rank, lane, name(event), event.issued, event.done, args)
        if event.waited is not None:
            yield _slice(event.rank, _COMPUTE, f"wait: {name(event)}", event.waited, event.done)


def _slice(
    rank: int, lane: int, what: str, start: float, end: float, args: dict | None = None
) -> dict:
    return {
        "ph": "X",
        "pid": rank,
        "tid": lane,
        "name": what,
        "ts": start,
        "dur": end - start,
        "args": args or {},
    }


def _arrows(trace: "Trace", lanes: dict[tuple[int, int], int]) -> Iterator[dict]:
    for number, (send, receive) in enumerate(trace.match().pairs):
        if send.done is None or receive.done is None:
            continue
        # The beginning of an arrow binds to the slice around it, as does an end with bp "e".
        for phase, event, time in (("s", send, send.issued), ("f", receive, receive.done)):
            yield {
                "ph": phase,
                "bp": "e",
                "id": number,
                "cat": "message",
                "name": "message",
                "pid": event.rank,
                "tid": lanes[event.rank, event.n],
                "ts": time,
            }


def _memory(trace: "Trace") -> Iterator[dict]:
    if trace.blocks:
        for rank, curve in enumerate(trace.memory().curves):
            for place, time in enumerate(curve.times):
                held = {kind: column[place] for kind, column in curve.nbytes.items()}
                yield {"ph": "C", "pid": rank, "name": "memory", "ts": time, "args": held}
