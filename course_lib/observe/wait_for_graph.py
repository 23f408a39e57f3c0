"""Ranks that wait for each other in a circle: what makes a run that is stuck a deadlock."""

from collections.abc import Collection, Mapping

from .events import CommEvent
from .trace import Trace


def awaited(event: CommEvent, trace: Trace) -> list[int]:
    """The ranks that would have to do something before this operation can end."""
    if event.op in ("send", "recv"):
        return [] if event.peer is None else [event.peer]
    for group in trace.match().groups:
        if group.group == event.group and group.divergence is not None:
            return [rank for rank in group.ranks if rank not in group.divergence.calls]
    return []


def has_cycle(waits_for: Mapping[int, Collection[int]]) -> bool:
    """Whether some ranks wait for each other in a circle, each for all those named."""
    left = dict(waits_for)
    while free := [rank for rank, others in left.items() if left.keys().isdisjoint(others)]:
        for rank in free:
            del left[rank]
    return bool(left)


def wait_cycle(start: int, waits_for: Mapping[int, int]) -> list[int]:
    """The ranks of the circle from `start` back to it, in the order of waiting; [] for none.

    waits_for: the rank for which a rank waits; those that wait for nobody are not in it.
    """
    path, rank = [start], waits_for.get(start)
    while rank is not None and rank not in path:
        path.append(rank)
        rank = waits_for.get(rank)
    return path if rank == start else []
