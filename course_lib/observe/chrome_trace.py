"""A recording in the Chrome trace format, for Perfetto (ui.perfetto.dev) or chrome://tracing.

Each rank is a process with lanes for its labels, for what it computes or waits for, and for its
collectives, receives and sends, each on as many lanes as were under way at once. An arrow leads
from each send to what its receiver did next, and memory is a curve. Times are those of the clock on
the wall.

Format: "Trace Event Format", Google, 2016: complete events X, flows s and f, counters C, metadata
M; times in microseconds. Two habits of Perfetto: a thread's number belongs to one process only,
and a thread with the number of its process is shown as that one's main thread. So lanes are
numbered through all ranks, from the world size on. (It shows the ranks with most slices first;
chrome://tracing heeds the order given here.)
"""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .event_wording import name

if TYPE_CHECKING:
    from .events import CommEvent
    from .trace import Trace

_ROWS = ("labels", "computes or waits", "collectives", "receives", "sends")  # from above
_LABELS, _COMPUTE, _COLLECTIVES, _RECEIVES, _SENDS = range(len(_ROWS))
_Lane = tuple[int, int, int]  # rank, row, and which of the row's lanes


def chrome_events(trace: "Trace") -> list[dict[str, Any]]:
    """The `traceEvents` of the file."""
    starts = [
        *(event.issued for event in trace.events),
        *(span.start for span in trace.compute),
        *(label.start for label in trace.labels),
        *(block.steps[0][0] for block in trace.blocks),
    ]
    start = min(starts, default=0.0)
    lanes = _lanes(trace)
    usual = ((rank, row, 0) for rank in range(trace.world_size) for row in (_LABELS, _COMPUTE))
    threads = dict(
        zip(sorted({*usual, *lanes.values()}), itertools.count(trace.world_size), strict=False)
    )
    made = [
        *_names(trace.world_size, threads),
        *_spans(trace, threads),
        *_communications(trace, lanes, threads),
        *_arrows(trace, lanes, threads),
        *_memory(trace),
    ]
    for event in made:
        if "ts" in event:
            event["ts"] = (event["ts"] - start) * 1e6
        if "dur" in event:
            event["dur"] *= 1e6
    return made


def _lanes(trace: "Trace") -> dict[tuple[int, int], _Lane]:
    """A lane for each event that is over, such that none holds two at a time."""
    lanes = {}
    free_from: dict[tuple[int, int], list[float]] = defaultdict(list)
    for event in sorted(trace.events, key=lambda event: event.issued):
        if event.done is None:
            continue
        row = {"send": _SENDS, "recv": _RECEIVES}.get(event.op, _COLLECTIVES)
        free = free_from[event.rank, row]
        lane = next((k for k, time in enumerate(free) if time <= event.issued), len(free))
        free[lane : lane + 1] = [event.done]
        lanes[event.rank, event.n] = event.rank, row, lane
    return lanes


def _names(world_size: int, threads: Mapping[_Lane, int]) -> Iterator[dict]:
    for rank in range(world_size):
        yield _meta(rank, 0, "process_name", name=f"rank {rank}")
        yield _meta(rank, 0, "process_sort_index", sort_index=rank)
    for (rank, row, _), thread in threads.items():
        yield _meta(rank, thread, "thread_name", name=_ROWS[row])
        yield _meta(rank, thread, "thread_sort_index", sort_index=thread)


def _meta(rank: int, thread: int, kind: str, **args: Any) -> dict:
    return {"ph": "M", "pid": rank, "tid": thread, "name": kind, "args": args}


def _spans(trace: "Trace", threads: Mapping[_Lane, int]) -> Iterator[dict]:
    for label in trace.labels:
        thread = threads[label.rank, _LABELS, 0]
        yield _slice(label.rank, thread, label.name, label.start, label.end)
    for span in trace.compute:
        args = {"processor time, ms": span.seconds * 1e3}
        thread = threads[span.rank, _COMPUTE, 0]
        yield _slice(span.rank, thread, span.name, span.start, span.end, args)


def _communications(
    trace: "Trace", lanes: Mapping[tuple[int, int], _Lane], threads: Mapping[_Lane, int]
) -> Iterator[dict]:
    for event in trace.events:
        if event.done is None:
            continue
        args = {"bytes": event.nbytes, "dtype": event.dtype, "shapes": event.shapes}
        if event.where:
            line = event.where[0]
            args["line"] = f"{line.file}:{line.line} in {line.function}"
        thread = threads[lanes[event.rank, event.n]]
        yield _slice(event.rank, thread, name(event), event.issued, event.done, args)
        if event.waited is not None:
            thread = threads[event.rank, _COMPUTE, 0]
            yield _slice(event.rank, thread, f"wait: {name(event)}", event.waited, event.done)


def _slice(
    rank: int, thread: int, what: str, start: float, end: float, args: dict | None = None
) -> dict:
    return {
        "ph": "X",
        "pid": rank,
        "tid": thread,
        "name": what,
        "ts": start,
        "dur": end - start,
        "args": args or {},
    }


def _arrows(
    trace: "Trace", lanes: Mapping[tuple[int, int], _Lane], threads: Mapping[_Lane, int]
) -> Iterator[dict]:
    goes_on: dict[int, float] = {}  # by rank, when it last began to compute
    for span in trace.compute:
        goes_on[span.rank] = max(span.start, goes_on.get(span.rank, 0))
    for number, (send, receive) in enumerate(trace.match().pairs):
        if send.done is None or receive.done is None:
            continue
        yield _end("s", number, send, threads[lanes[send.rank, send.n]], send.issued)
        # To what the rank does next, if anything. Not to the receive, which may have begun before
        # the send: Perfetto lets every arrow start at the slice that began first.
        if goes_on.get(receive.rank, -1) >= receive.done:
            thread = threads[receive.rank, _COMPUTE, 0]
            yield _end("f", number, receive, thread, receive.done)
        else:
            thread = threads[lanes[receive.rank, receive.n]]
            yield _end("f", number, receive, thread, receive.done) | {"bp": "e"}


def _end(phase: str, number: int, event: "CommEvent", thread: int, time: float) -> dict:
    """One end of an arrow.

    A beginning is bound to the slice around it, as is an end with bp "e"; an end without it, to the
    next slice of its thread.
    """
    return {
        "ph": phase,
        "id": number,
        "cat": "message",
        "name": "message",
        "pid": event.rank,
        "tid": thread,
        "ts": time,
    }


def _memory(trace: "Trace") -> Iterator[dict]:
    if trace.blocks:
        for rank, curve in enumerate(trace.memory().curves):
            for index, time in enumerate(curve.times):
                held = {kind: column[index] for kind, column in curve.nbytes.items()}
                yield {"ph": "C", "pid": rank, "name": "memory", "ts": time, "args": held}
