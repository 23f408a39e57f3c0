"""Which send belongs to which recv, and whether the ranks of a group call the same collectives.

Torch matches the k-th send from rank a to rank b with the k-th recv of b from a of the same tag and
process group, whatever their sizes; and the k-th collective of a rank on a group with the k-th of
every other, whatever they are. So does this, for recorded events.
"""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass

from .events import CommEvent


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first of a group's collectives in which the ranks do not agree.

    index: how many collectives of the group came before.
    what: in what they differ: "operation", "root", "reduction", "dtype", "size", or "missing" if
        the calls agree but not every rank has one.
    calls: {global rank: its call there}; a rank without one is left out.
    """

    index: int
    what: str
    calls: dict[int, CommEvent]


@dataclass(frozen=True, slots=True)
class GroupCalls:
    """The collectives of one process group: {global rank: its calls, in order}."""

    group: str
    ranks: tuple[int, ...]
    calls: dict[int, list[CommEvent]]
    divergence: Divergence | None


@dataclass(frozen=True, slots=True)
class Matching:
    """What fits together and what is left over; events in order of issue on each rank."""

    pairs: list[tuple[CommEvent, CommEvent]]
    unmatched_sends: list[CommEvent]
    unmatched_recvs: list[CommEvent]
    groups: list[GroupCalls]


def match(events: Iterable[CommEvent]) -> Matching:
    """Match the events of all ranks; those of one rank must be in the order of their issue."""
    events = list(events)
    pairs, sends, recvs = _messages(events)
    return Matching(pairs, sends, recvs, _groups(events))


def _messages(
    events: list[CommEvent],
) -> tuple[list[tuple[CommEvent, CommEvent]], list[CommEvent], list[CommEvent]]:
    waiting: dict[tuple, deque[CommEvent]] = defaultdict(deque)
    for event in events:
        if event.op == "send":
            waiting[event.rank, event.peer, event.tag, event.group].append(event)
    recvs = [event for event in events if event.op == "recv"]
    pairs, left = [], []
    # Receives whose source is known come first; one from any rank takes what is then left.
    for recv in sorted(recvs, key=lambda event: event.peer is None):
        sources = recv.ranks if recv.peer is None else (recv.peer,)
        queues = [waiting[source, recv.rank, recv.tag, recv.group] for source in sources]
        queue = min(filter(None, queues), key=lambda queue: queue[0].issued, default=None)
        if queue is None:
            left.append(recv)
        else:
            pairs.append((queue.popleft(), recv))
    sends = [event for queue in waiting.values() for event in queue]
    return pairs, sorted(sends, key=_order), sorted(left, key=_order)


def _order(event: CommEvent) -> tuple[int, int]:
    return event.rank, event.n


def _groups(events: list[CommEvent]) -> list[GroupCalls]:
    groups: dict[tuple[str, tuple[int, ...]], dict[int, list[CommEvent]]] = {}
    for event in events:
        if event.op not in ("send", "recv"):
            calls = groups.setdefault((event.group, event.ranks), {})
            calls.setdefault(event.rank, []).append(event)
    return [
        GroupCalls(group, ranks, calls, _diverge(ranks, calls))
        for (group, ranks), calls in groups.items()
    ]


def _diverge(ranks: tuple[int, ...], calls: dict[int, list[CommEvent]]) -> Divergence | None:
    for index in range(max(map(len, calls.values()))):
        here = {rank: calls[rank][index] for rank in ranks if index < len(calls.get(rank, ()))}
        for what, of in _ASPECTS.items():
            if len({of(event) for event in here.values()}) > 1:
                return Divergence(index, what, here)
        if len(here) < len(ranks):
            return Divergence(index, "missing", here)
    return None


def _size(event: CommEvent) -> int | None:
    # Ranks may hand each other unequal parts.
    return None if event.op == "all_to_all" or event.splits else event.nbytes


# In the order in which a difference explains the most.
_ASPECTS = {
    "operation": lambda event: event.op,
    "root": lambda event: event.peer,
    "reduction": lambda event: event.reduce_op,
    "dtype": lambda event: event.dtype,
    "size": _size,
}
