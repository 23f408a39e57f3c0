"""Known answers to blame."""

import numpy

from course_lib.checks.known_answers import right, wrong


@right
def blame(waits):
    """Ends are whoever is waited for and waits for nobody; circles are found by closing them."""
    arrows = {rank: peer for rank, peer in waits.items() if peer is not None}
    ends = set(arrows.values()) - set(arrows)
    reached = {rank: {rank} for rank in arrows}
    for rank, seen in reached.items():
        seen.clear()
        here = arrows[rank]
        while here not in seen:
            seen.add(here)
            here = arrows.get(here, here)
    return sorted(ends | {rank for rank, seen in reached.items() if rank in seen})


@right
def blame_where_long_walks_end(waits):
    """As many steps as there are ranks, for all at once; a tuple of numpy's numbers."""
    here = [rank for rank, peer in waits.items() if peer is not None]
    for _ in waits:
        here = [rank if waits[rank] is None else waits[rank] for rank in here]
    return tuple(numpy.int64(rank) for rank in sorted(set(here)))


@right
def blame_recursively(waits):
    def ends(rank, path=()):
        if waits[rank] is None:
            return {rank} if path else set()
        if rank in path:
            return set(path[path.index(rank) :])
        return ends(waits[rank], (*path, rank))

    return sorted(set().union(*map(ends, waits)))


@right
def blame_as_an_array(waits):
    return numpy.array(blame(waits), dtype=int)


@wrong(says="nobody waits for rank")
def blame_all_who_do_not_wait(waits):
    idle = [rank for rank, peer in waits.items() if peer is None]
    return idle or sorted(waits)


@wrong(says="rank 0 waits for rank 1, and is itself only held up")
def blame_all_who_wait(waits):
    return sorted(rank for rank, peer in waits.items() if peer is not None)


@wrong(says="rank 1 waits for rank 2, and is itself only held up")
def blame_the_next(waits):
    return sorted({peer for peer in waits.values() if peer is not None})


@wrong(says="never arrives: stop at a rank that you have been to")
def follow_for_ever(waits):
    found = set()
    for rank, peer in waits.items():
        while waits[rank] is not None:
            rank = waits[rank]
        if peer is not None:
            found.add(rank)
    return sorted(found)


@wrong(says="it is part of a circle")
def blame_ends_only(waits):
    waited_for = set(waits.values()) - {None}
    return sorted(rank for rank in waited_for if waits[rank] is None)


def walked(waits, start):
    """(path, where it ended)"""
    path, rank = [], start
    while waits[rank] is not None and rank not in path:
        path.append(rank)
        rank = waits[rank]
    return path, rank


@wrong(says="All members are to blame alike")
def blame_where_the_walk_began(waits):
    waiting = [rank for rank, peer in waits.items() if peer is not None]
    return sorted({walked(waits, rank)[1] for rank in waiting[:1]})


@wrong(says="rank 0 waits for rank 1, and is itself only held up: follow the arrow on")
def blame_the_way_in(waits):
    found = set()
    for start in waits:
        path, end = walked(waits, start)
        found.update(path if waits[end] is not None else [end] if path else [])
    return sorted(found)


@wrong(says="it waits for nobody")
def blame_circles_only(waits):
    found = set()
    for start in waits:
        path, end = walked(waits, start)
        found.update(path[path.index(end) :] if end in path else [])
    return sorted(found)


@wrong(says="a rank is to blame once")
def blame_for_each_wait(waits):
    ends = [walked(waits, rank) for rank in waits]
    return sorted(end for path, end in ends if path)


@wrong(says="you returned a set")
def blame_as_a_set(waits):
    return {walked(waits, rank)[1] for rank in waits}


@wrong(says="rank 0 counts as nobody")
def blame_with_rank_0_for_nobody(waits):
    found = set()
    for rank in waits:
        path = []
        while waits[rank] and rank not in path:
            path.append(rank)
            rank = waits[rank]
        found.update(path[path.index(rank) :] if rank in path else [rank] if path else [])
    return sorted(found)


@wrong(says="to where the chain ends")
def blame_after_three_steps(waits):
    found = set()
    for rank, peer in waits.items():
        for _ in range(3):
            rank = rank if waits[rank] is None else waits[rank]
        found.update([] if peer is None else [rank])
    return sorted(found)


@wrong(says="the argument `waits` is not what it was before the call")
def blame_and_take_apart(waits):
    found = blame_recursively(waits)
    waits.clear()
    return found


@right
def blame_by_taking_away(waits):
    """Whoever is waited for by nobody goes, again and again; who is left closes a circle."""
    ends = {peer for peer in waits.values() if peer is not None and waits[peer] is None}
    left = dict(waits)
    while gone := set(left) - set(left.values()):
        left = {rank: peer for rank, peer in left.items() if rank not in gone}
    while gone := {rank for rank, peer in left.items() if peer not in left}:
        left = {rank: peer for rank, peer in left.items() if rank not in gone}
    return sorted(ends.union(left))


@wrong(says="sorted(...) makes them a list in order")
def blame_in_the_order_of_a_set(waits):
    """Small numbers look sorted in a set; 1 and 8 do not."""
    return list(set(blame(waits)))
