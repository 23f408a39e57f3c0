"""Ring all-reduce: every rank talks to its two neighbours only, and sends the least possible.

Cut the tensor into n chunks. In n - 1 steps round the ring, every rank passes a chunk on to the
right and adds the one that comes from the left to its own (reduce-scatter); then each rank has one
chunk complete, and in n - 1 further steps the complete chunks go round (all-gather). Four ranks,
what rank r sends and what it receives:

            reduce-scatter                    all-gather
    step    0      1      2                   0      1      2
    sends   r-1    r-2    r-3 = r+1           r      r-1    r-2
    gets    r-2    r-3    r = complete        r-1    r-2    r-3

First the plain loops, which are all there is to it; then the functions to call, which take the same
steps in segments where that is faster (pipelined_ring.py).

Sent per rank: (n-1)/n of the tensor in each phase, 2 (n-1)/n in all, which no all-reduce can
undercut; cost 2 (n-1) alpha + 2 (n-1)/n S beta.

Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of
Parallel and Distributed Computing 69(2), 2009.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from .members import Members, flat_view
from .pipelined_ring import pipelined, spreading, summing


def reduce_scatter_one_by_one(chunks: list[torch.Tensor], members: Members) -> None:
    """In place: chunk r is complete on rank r afterwards, the others hold partial sums."""
    n, r = len(members), members.rank
    for step in range(n - 1):
        outgoing, incoming = chunks[(r - step - 1) % n], chunks[(r - step - 2) % n]
        arrived = torch.empty_like(incoming)
        _pass_on(outgoing, arrived, members)
        incoming += arrived


def all_gather_one_by_one(chunks: list[torch.Tensor], members: Members) -> None:
    """In place: chunk r of rank r is copied to all."""
    n, r = len(members), members.rank
    for step in range(n - 1):
        _pass_on(chunks[(r - step) % n], chunks[(r - step - 1) % n], members)


def _pass_on(outgoing: torch.Tensor, incoming: torch.Tensor, members: Members) -> None:
    """Send to the right and receive from the left, and wait for both."""
    n, r = len(members), members.rank
    for work in members.start_exchange(outgoing, (r + 1) % n, incoming, (r - 1) % n):
        work.wait()


# -------------------------------------------------------------------------------------------------
# What to call
# -------------------------------------------------------------------------------------------------


def ring_reduce_scatter(
    tensor: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Chunk r of the sum over the group, on rank r: (ceil(numel / n),), padded with zeros.

    `tensor` stays as it was. Sends (n-1)/n of the padded tensor per rank.
    """
    members = Members.of(group)
    chunks = cut(flat_view(tensor).clone(), len(members))
    reduce_scatter_chunks(chunks, members)
    return chunks[members.rank].clone()


def ring_all_gather(chunk: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """All chunks in rank order, on every rank: (n * numel,).

    `chunk` stays as it was. Sends n - 1 chunks per rank.
    """
    members = Members.of(group)
    flat = flat_view(chunk)
    gathered = flat.new_empty(len(members), flat.numel())
    gathered[members.rank] = flat
    all_gather_chunks(list(gathered), members)
    return gathered.view(-1)


def ring_all_reduce(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Sum `tensor` over the group, in place.

    Sends exactly 2 (n-1)/n of the tensor per rank, counted with the zeros that make the last chunk
    as long as the others.
    """
    ring_all_reduce_members(flat_view(tensor), Members.of(group))
    return tensor


def ring_all_reduce_members(flat: torch.Tensor, members: Members) -> None:
    """Sum `flat` over `members`, in place."""
    chunks = cut(flat, len(members))
    if _in_segments(chunks):
        pipelined(summing(chunks, members), spreading(chunks, members), members)
    else:
        reduce_scatter_chunks(chunks, members)
        all_gather_chunks(chunks, members)
    put_back(chunks, flat)


def reduce_scatter_chunks(chunks: list[torch.Tensor], members: Members) -> None:
    """In place: chunk r is complete on rank r afterwards, the others hold partial sums."""
    if _in_segments(chunks):
        pipelined(summing(chunks, members), [], members)
    elif chunks[0].numel():
        reduce_scatter_one_by_one(chunks, members)


def all_gather_chunks(chunks: list[torch.Tensor], members: Members) -> None:
    """In place: chunk r of rank r is copied to all."""
    if _in_segments(chunks):
        pipelined([], spreading(chunks, members), members)
    elif chunks[0].numel():
        all_gather_one_by_one(chunks, members)


def _in_segments(chunks: list[torch.Tensor]) -> bool:
    """Whether there is something to send, and many messages at once are faster.

    They are with gloo. NCCL makes one wait for the other unless they are one batch.
    """
    return len(chunks) > 1 and chunks[0].numel() > 0 and chunks[0].is_cpu


def cut(flat: torch.Tensor, n: int) -> list[torch.Tensor]:
    """n chunks of ceil(numel / n): views of `flat`, and zero-padded copies from where it ends."""
    if flat.numel() % n == 0:
        return list(flat.view(n, -1).unbind())
    size = -(-flat.numel() // n)
    views = [flat[i * size : (i + 1) * size] for i in range(n)]
    return [F.pad(v, (0, size - v.numel())) if v.numel() < size else v for v in views]


def put_back(chunks: list[torch.Tensor], flat: torch.Tensor) -> None:
    """Copy into `flat` the chunks of `cut` that are not views of it."""
    if flat.numel() % len(chunks) == 0:
        return
    size = chunks[0].numel()
    for i in range(flat.numel() // size, len(chunks)):
        view = flat[i * size : (i + 1) * size]
        view.copy_(chunks[i][: view.numel()])
