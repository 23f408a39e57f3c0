"""Ring all-reduce: every rank talks to its two neighbours only, and sends the least possible.

Cut the tensor into n chunks. In n - 1 steps round the ring, every rank passes a chunk on to the
right and adds the one that comes from the left to its own (reduce-scatter); then each rank has one
chunk complete, and in n - 1 further steps the complete chunks go round (all-gather). Four ranks,
what rank r sends and what it receives:

            reduce-scatter                    all-gather
    step    0      1      2                   0      1      2
    sends   r-1    r-2    r-3 = r+1           r      r-1    r-2
    gets    r-2    r-3    r = complete        r-1    r-2    r-3

Sent per rank: (n-1)/n of the tensor in each phase, 2 (n-1)/n in all, which no all-reduce can
undercut; cost 2 (n-1) alpha + 2 (n-1)/n S beta.

Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", Journal of
Parallel and Distributed Computing 69(2), 2009.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.techniques.collectives.members import Members, flat_view

# A long chunk travels in segments of this size, so that one is added up while the next arrives, and
# the memory it arrives in is small enough to be had again without new pages from the system.
SEGMENT_BYTES = 4 << 20

Hop = tuple[torch.Tensor, torch.Tensor]  # what leaves to the right, what comes from the left


def ring_reduce_scatter(
    tensor: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Chunk r of the sum over the group, on rank r: (ceil(numel / n),), padded with zeros.

    `tensor` stays as it was. Sends (n-1)/n of the padded tensor per rank.
    """
    members = Members.of(group)
    chunks = cut(flat_view(tensor).clone(), len(members))
    reduce_scatter_chunks(chunks, members)
    return chunks[members.place].clone()


def ring_all_gather(chunk: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """All chunks in rank order, on every rank: (n * numel,).

    `chunk` stays as it was. Sends n - 1 chunks per rank.
    """
    members = Members.of(group)
    flat = flat_view(chunk)
    gathered = flat.new_empty(len(members), flat.numel())
    gathered[members.place] = flat
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
    reduce_scatter_chunks(chunks, members)
    all_gather_chunks(chunks, members)
    put_back(chunks, flat)


def cut(flat: torch.Tensor, n: int) -> list[torch.Tensor]:
    """n chunks of ceil(numel / n): views of `flat`, and zero-padded copies from where it ends."""
    size = -(-flat.numel() // n)
    views = [flat[i * size : (i + 1) * size] for i in range(n)]
    return [F.pad(v, (0, size - v.numel())) if v.numel() < size else v for v in views]


def put_back(chunks: list[torch.Tensor], flat: torch.Tensor) -> None:
    """Copy into `flat` the chunks of `cut` that are not views of it."""
    size = chunks[0].numel()
    for i in range(flat.numel() // size if size else len(chunks), len(chunks)):
        view = flat[i * size : (i + 1) * size]
        view.copy_(chunks[i][: view.numel()])


def reduce_scatter_chunks(chunks: list[torch.Tensor], members: Members) -> None:
    """In place: chunk r is complete on rank r afterwards, the others hold partial sums."""
    n, r = len(members), members.place
    hops = [(chunks[(r - step - 1) % n], chunks[(r - step - 2) % n]) for step in range(n - 1)]
    _travel(hops, members, add=True)


def all_gather_chunks(chunks: list[torch.Tensor], members: Members) -> None:
    """In place: chunk r of rank r is copied to all."""
    n, r = len(members), members.place
    hops = [(chunks[(r - step) % n], chunks[(r - step - 1) % n]) for step in range(n - 1)]
    _travel(hops, members, add=False)


def _travel(hops: list[Hop], members: Members, *, add: bool) -> None:
    """Make the hops in order; what arrives is added to its chunk, or replaces it."""
    n, r = len(members), members.place
    if not hops or not hops[0][0].numel():
        return
    segment = max(1, SEGMENT_BYTES // hops[0][0].element_size())
    pieces = [p for hop in hops for p in zip(*(c.split(segment) for c in hop), strict=True)]
    # A piece leaves in one step as it arrived in the step before: with two or more pieces to a
    # step, the next may leave before the last has arrived.
    window = min(2, len(pieces) // len(hops))
    landings = [torch.empty_like(pieces[0][1]) for _ in range(window if add else 0)]
    flights: list[list[dist.Work]] = []

    def land(i: int) -> None:
        for work in flights[i]:
            work.wait()
        if add:
            target = pieces[i][1]
            target.add_(landings[i % window][: target.numel()])

    for i, (outgoing, incoming) in enumerate(pieces):
        if i >= window:
            land(i - window)
        target = landings[i % window][: incoming.numel()] if add else incoming
        # Finished work is kept to the end: gloo's thread may still hold it for a moment, and
        # letting go of it would wait for that thread.
        flights.append(members.start_exchange(outgoing, (r + 1) % n, target, (r - 1) % n))
    for i in range(len(pieces) - window, len(pieces)):
        land(i)
