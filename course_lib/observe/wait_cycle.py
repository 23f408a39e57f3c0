"""Ranks that wait for each other in a circle: what makes a run that is stuck a deadlock."""

from collections.abc import Mapping


def wait_cycle(start: int, waits_for: Mapping[int, int]) -> list[int]:
    """The ranks of the circle from `start` back to it, in the order of waiting; [] for none.

    waits_for: the rank for which a rank waits; those that wait for nobody are not in it.
    """
    path, rank = [start], waits_for.get(start)
    while rank is not None and rank not in path:
        path.append(rank)
        rank = waits_for.get(rank)
    return path if rank == start else []
