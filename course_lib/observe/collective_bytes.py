"""How a built-in collective is counted: who sends how many bytes to whom.

What the inside of gloo or NCCL really sends depends on version, size and environment, so each
collective is accounted as one named algorithm, the standard one on a ring. With n ranks, N bytes in
the tensor and S bytes in one rank's share:

    operation       counted as                      each rank sends              all ranks
    all_reduce      ring: reduce-scatter, then      2(n-1)/n N                   2(n-1) N
                    all-gather [1]
    reduce_scatter  ring [1]                        (n-1) S                      n(n-1) S
    all_gather      ring [1]                        (n-1) S                      n(n-1) S
    broadcast       chain from the root around      N; the last one 0            (n-1) N
                    the ring, in pieces [2]
    reduce          the same chain towards the      N; the root 0                (n-1) N
                    root, adding on the way [2]
    gather          straight to the root            S; the root 0                (n-1) S
    scatter         straight from the root          the root (n-1) S             (n-1) S
    all_to_all      straight to everybody           all but its own part
    barrier         not counted                     0                            0
    send            as it is                        its message

The ring goes from each rank to the next one in the group's order. Where n does not divide the
tensor, the first chunks hold one element more, as in torch.tensor_split, so all counts are whole
numbers. Messages are those of the algorithm: 2(n-1) in a ring all-reduce.

Every event accounts for what its own rank sends, and what is received follows from that: the two
always add up to the same.

[1] Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
    J. Parallel Distrib. Comput. 69 (2009), section 3: no algorithm lets a rank send less.
[2] The pipelined algorithm of Chan, Heimlich, Purkayastha & van de Geijn, "Collective
    communication: theory, practice, and experience", Concurrency Computat. 19 (2007); NCCL's ring
    broadcast and reduce.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from .events import CommEvent


@dataclass(frozen=True, slots=True)
class Sent:
    """Bytes that went to global rank `to`, in so many messages."""

    to: int
    nbytes: int
    messages: int


def sends(event: CommEvent) -> Iterator[Sent]:
    """What the rank of `event` sends in it."""
    if event.op == "send":
        assert event.peer is not None
        yield Sent(event.peer, event.nbytes, 1)
    elif len(event.ranks) > 1 and event.op in _ALGORITHMS:
        yield from _ALGORITHMS[event.op](event)


def _next(event: CommEvent) -> tuple[int, int, int]:
    """(n, this rank's group rank, the next rank around the ring)."""
    n = len(event.ranks)
    group_rank = event.ranks.index(event.rank)
    return n, group_rank, event.ranks[(group_rank + 1) % n]


def _all_reduce(event: CommEvent) -> Iterator[Sent]:
    # Rank i starts with chunk i, so in n-1 steps it sends all but chunk i+1; that one is then
    # complete here, and in n-1 more steps it sends all but chunk i+2.
    n, group_rank, right = _next(event)
    chunks = _chunks(event, n)
    nbytes = 2 * sum(chunks) - chunks[(group_rank + 1) % n] - chunks[(group_rank + 2) % n]
    yield Sent(right, nbytes, 2 * (n - 1))


def _chunks(event: CommEvent, n: int) -> list[int]:
    """Bytes of the tensor's n chunks."""
    size = getattr(torch, event.dtype).itemsize
    each, more = divmod(event.nbytes // size, n)
    return [(each + (k < more)) * size for k in range(n)]


def _reduce_scatter(event: CommEvent) -> Iterator[Sent]:
    # All parts pass through here but the rank's own, which arrives last and stays.
    n, group_rank, right = _next(event)
    parts = event.splits or [event.nbytes] * n
    yield Sent(right, sum(parts) - parts[group_rank], n - 1)


def _all_gather(event: CommEvent) -> Iterator[Sent]:
    # All parts are passed on but the next rank's, which it has itself.
    n, group_rank, right = _next(event)
    parts = event.splits or [event.nbytes] * n
    yield Sent(right, sum(parts) - parts[(group_rank + 1) % n], n - 1)


def _broadcast(event: CommEvent) -> Iterator[Sent]:
    _, _, right = _next(event)
    if right != event.peer:
        yield Sent(right, event.nbytes, 1)


def _reduce(event: CommEvent) -> Iterator[Sent]:
    _, _, right = _next(event)
    if event.rank != event.peer:
        yield Sent(right, event.nbytes, 1)


def _gather(event: CommEvent) -> Iterator[Sent]:
    assert event.peer is not None  # it has a root
    if event.rank != event.peer:
        yield Sent(event.peer, event.nbytes, 1)


def _scatter(event: CommEvent) -> Iterator[Sent]:
    if event.rank == event.peer:
        yield from (Sent(to, event.nbytes, 1) for to in event.ranks if to != event.rank)


def _all_to_all(event: CommEvent) -> Iterator[Sent]:
    n = len(event.ranks)
    parts = event.splits or [event.nbytes // n] * n
    for to, nbytes in zip(event.ranks, parts, strict=True):
        if to != event.rank:
            yield Sent(to, nbytes, 1)


_ALGORITHMS: dict[str, Callable[[CommEvent], Iterator[Sent]]] = {
    "all_reduce": _all_reduce,
    "reduce_scatter": _reduce_scatter,
    "all_gather": _all_gather,
    "broadcast": _broadcast,
    "reduce": _reduce,
    "gather": _gather,
    "scatter": _scatter,
    "all_to_all": _all_to_all,
}
