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

# A long chunk travels in segments of this size: one is on its way while another is added up, and
# the memory they land in is small enough to be had again without new pages from the system.
SEGMENT_BYTES = 2 << 20

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
    """Make the hops; what arrives is added to its chunk (`add`), or replaces it."""
    if hops and hops[0][0].numel():
        # gloo moves any number of messages at once. NCCL makes one wait for the other unless they
        # are one batch.
        travel = pipelined if hops[0][0].device.type == "cpu" else one_by_one
        travel(hops, members, add=add)


def one_by_one(hops: list[Hop], members: Members, *, add: bool) -> None:
    """The algorithm as the papers tell it: send and receive, wait for both, add."""
    n, r = len(members), members.place
    for outgoing, incoming in hops:
        arrived = torch.empty_like(incoming) if add else incoming
        for work in members.start_exchange(outgoing, (r + 1) % n, arrived, (r - 1) % n):
            work.wait()
        if add:
            incoming += arrived


def pipelined(
    hops: list[Hop], members: Members, *, add: bool, segment_bytes: int = SEGMENT_BYTES
) -> None:
    """The same hops in segments, so that sending, receiving and adding go on at the same time."""
    n, r, group = len(members), members.place, members.group
    left, right = members.ranks[(r - 1) % n], members.ranks[(r + 1) % n]
    pieces = _in_segments(hops, segment_bytes)
    # A piece leaves as it arrived one step before. Where a step has several pieces, two are under
    # way, so that one travels while the other is added up.
    lead = 2 if len(pieces) > len(hops) else 1
    # Receives are posted early, all of them where each piece has a place of its own: a sender whose
    # receiver waits already need not ask. What is to be added lands in one buffer, which is then
    # still in the processor's cache when it is added.
    ahead = 1 if add else len(pieces)
    buffer = torch.empty_like(pieces[0][1]) if add else None
    landings = [x if buffer is None else buffer[: x.numel()] for _, x in pieces]

    # Finished work stays in these lists, since letting go of it waits for gloo's own thread.
    receives = [dist.irecv(landings[i], group=group, group_src=left) for i in range(ahead)]
    sends = [dist.isend(pieces[i][0], group=group, group_dst=right) for i in range(lead)]
    for i, (_, incoming) in enumerate(pieces):
        receives[i].wait()
        if add:
            incoming += landings[i]
        if i + ahead < len(pieces):
            receives.append(dist.irecv(landings[i + ahead], group=group, group_src=left))
        if i + lead < len(pieces):
            sends.append(dist.isend(pieces[i + lead][0], group=group, group_dst=right))
    for send in sends:
        send.wait()


def _in_segments(hops: list[Hop], segment_bytes: int) -> list[Hop]:
    longest = max(1, segment_bytes // hops[0][0].element_size())
    if hops[0][0].numel() <= longest:
        return hops
    return [
        piece
        for outgoing, incoming in hops
        for piece in zip(outgoing.split(longest), incoming.split(longest), strict=True)
    ]
