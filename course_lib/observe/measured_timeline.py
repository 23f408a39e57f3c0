"""A recorded run as the timeline of as many devices as it had ranks, however few cores there were.

Each rank has a clock of its own that adds up the processor time of what it computed. Who waits goes
on when all who take part have come to the operation, by their clocks, and after that what it still
had to wait on the wall once all had come: what moving the bytes took, as far as anybody saw.
"""

from collections.abc import Iterable, Iterator

from .events import CommEvent, ComputeSpan
from .matching import Matching
from .timeline import (
    COMMUNICATION,
    COMPUTE,
    Span,
    Timeline,
    Track,
    read_label,
)

_Key = tuple[int, int]  # rank and number of an event


def measured(
    world_size: int, events: Iterable[CommEvent], compute: Iterable[ComputeSpan], matched: Matching
) -> Timeline:
    """The timeline; what was not over when the recording ended is left out."""
    members = _members(matched)
    clocks = [0.0] * world_size
    arrived: dict[_Key, float] = {}
    spans: list[Span] = []
    last: dict[int, int] = {}  # by rank, the place of its last computation, which may go on
    for what in _in_order(events, compute):
        clock = clocks[what.rank]
        if isinstance(what, ComputeSpan):
            clocks[what.rank] += what.seconds
            span = Span(what.rank, clock, clocks[what.rank], read_label(what.name), COMPUTE)
            before = last.get(what.rank)
            if before is not None and (spans[before].end, spans[before].what) == (clock, span.what):
                spans[before] = spans[before]._replace(end=span.end)
            else:
                last[what.rank] = len(spans)
                spans.append(span)
        elif _key(what) not in arrived:
            arrived[_key(what)] = clock
        else:
            assert what.done is not None  # see `_in_order`
            # A buffered send is over before there is a receive, and does not depend on it.
            came = [e for e in members.get(_key(what), (what,)) if e.issued <= what.done]
            ready = max(arrived[_key(event)] for event in came)
            waited = what.done if what.waited is None else what.waited
            moving = what.done - max(waited, *(event.issued for event in came), what.issued)
            clocks[what.rank] = max(clock, ready) + max(0.0, moving)
            name, track = _label(what)
            spans.append(Span(what.rank, ready, clocks[what.rank], name, track, what))
    return Timeline(world_size, list(_tracks(spans)))


def _in_order(
    events: Iterable[CommEvent], compute: Iterable[ComputeSpan]
) -> Iterator[CommEvent | ComputeSpan]:
    """Everything as it began; an operation a second time when it was over."""
    points: list[tuple[float, CommEvent | ComputeSpan]] = [(span.start, span) for span in compute]
    for event in events:
        points.append((event.issued, event))
        if event.done is not None:
            points.append((event.done, event))
    return (what for _, what in sorted(points, key=lambda point: point[0]))


def _members(matched: Matching) -> dict[_Key, tuple[CommEvent, ...]]:
    """All who take part in an operation, by each of them."""
    together = list(matched.pairs)
    for group in matched.groups:
        together += zip(*group.calls.values(), strict=False)
    return {_key(event): tuple(events) for events in together for event in events}


def _key(event: CommEvent) -> _Key:
    return event.rank, event.n


def _label(event: CommEvent) -> tuple[str, str]:
    """What it is called, and on which track."""
    if event.op == "send":
        return f"send to {event.peer}", "send"
    if event.op == "recv":
        return f"receive from {event.peer}", "receive"
    return event.op, COMMUNICATION


def _tracks(spans: list[Span]) -> Iterator[Track]:
    """Compute tracks first, by rank."""
    tracks: dict[tuple[bool, int, str], list[Span]] = {}
    for span in spans:
        tracks.setdefault((span.track != COMPUTE, span.rank, span.track), []).append(span)
    for (_, rank, name), row in sorted(tracks.items()):
        row.sort(key=lambda span: span.start)
        columns = zip(*((s.start, s.end, s.what, s.event) for s in row), strict=True)
        yield Track(rank, name, *map(list, columns))
