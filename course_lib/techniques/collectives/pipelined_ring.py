"""The hops of a ring in segments, so that sending, receiving and adding go on at the same time.

    arrives     segment 0 | segment 1 | segment 2 | ...
    is added              | segment 0 | segment 1 | ...
    leaves                            | segment 0 | segment 1 ...

Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of
Parallel and Distributed Computing 69(2), 2009, count steps of whole chunks; segments do not change
the bytes, and cost a message each.
"""

from contextvars import ContextVar

import torch
import torch.distributed as dist

from .members import Members

# Shorter segments cost more for their messages than they gain, and longer ones gained nothing
# (gloo on two cores, 16 and 64 MB, segments of 1 to 32 MB).
SEGMENT_BYTES = 4 << 20

Hop = tuple[torch.Tensor, torch.Tensor]  # what leaves to the right, what comes from the left


def summing(chunks: list[torch.Tensor], members: Members) -> list[Hop]:
    """The hops of reduce-scatter: what arrives is added to its chunk."""
    n, r = len(members), members.rank
    return [(chunks[(r - step - 1) % n], chunks[(r - step - 2) % n]) for step in range(n - 1)]


def spreading(chunks: list[torch.Tensor], members: Members) -> list[Hop]:
    """The hops of all-gather: what arrives is to replace its chunk."""
    n, r = len(members), members.rank
    return [(chunks[(r - step) % n], chunks[(r - step - 1) % n]) for step in range(n - 1)]


def pipelined(
    adding: list[Hop],
    copying: list[Hop],
    members: Members,
    *,
    segment_bytes: int = SEGMENT_BYTES,
) -> None:
    """Make the hops; what arrives is added to its chunk in the first ones, then replaces it.

    Receives are posted as early as can be, since a sender whose receiver waits already need not
    ask. What is to be added lands in one buffer: a second one, filled meanwhile, gained nothing.
    """
    n, r = len(members), members.rank
    left, right = (r - 1) % n, (r + 1) % n
    hops = len(adding) + len(copying)
    adding, copying = _in_segments(adding, segment_bytes), _in_segments(copying, segment_bytes)
    pieces, sums = adding + copying, len(adding)
    # A piece leaves as it arrived one step before. Where a step has several pieces, two are under
    # way, so that one travels while the other is added up.
    lead = 2 if len(pieces) > hops else 1
    landings = [_room_for(incoming) for _, incoming in adding]
    landings += [incoming for _, incoming in copying]
    # Finished work stays in these lists, since letting go of it waits for gloo's own thread.
    receives: list[dist.Work] = []
    sends: list[dist.Work] = []

    def post(stop: int) -> None:
        receives.extend(
            members.start_receive(landing, left) for landing in landings[len(receives) : stop]
        )

    def send(stop: int) -> None:
        sends.extend(
            members.start_send(outgoing, right) for outgoing, _ in pieces[len(sends) : stop]
        )

    post(1 if adding else len(pieces))
    send(lead)
    for i, (_, incoming) in enumerate(pieces):
        receives[i].wait()
        if i == sums - 1:
            # Complete chunks replace the parts that this rank sent, so those must have left.
            for work in sends[:sums]:
                work.wait()
            post(len(pieces))
        if i < sums:
            incoming += landings[i]
            post(i + 2)
        send(i + 1 + lead)
    for work in sends[sums:]:
        work.wait()


def _in_segments(hops: list[Hop], segment_bytes: int) -> list[Hop]:
    return [
        piece
        for outgoing, incoming in hops
        for piece in zip(
            *(x.split(max(1, segment_bytes // x.element_size())) for x in (outgoing, incoming)),
            strict=True,
        )
    ]


# A buffer of at most a segment, kept between calls, for each thread its own. New pages from the
# system for each call would take up to a fifth of its time.
_kept: ContextVar[torch.Tensor | None] = ContextVar("kept", default=None)


def _room_for(piece: torch.Tensor) -> torch.Tensor:
    """Where a piece lands before it is added; the next one lands in the same memory."""
    nbytes = piece.numel() * piece.element_size()
    buffer = _kept.get()
    if buffer is None or buffer.numel() < nbytes:
        buffer = torch.empty(nbytes, dtype=torch.uint8)
        _kept.set(buffer)
    return buffer[:nbytes].view(piece.dtype)
