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
    _travel(_summing(chunks, members), _spreading(chunks, members), members)
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
    _travel(_summing(chunks, members), [], members)


def all_gather_chunks(chunks: list[torch.Tensor], members: Members) -> None:
    """In place: chunk r of rank r is copied to all."""
    _travel([], _spreading(chunks, members), members)


def _summing(chunks: list[torch.Tensor], members: Members) -> list[Hop]:
    """The hops of reduce-scatter."""
    n, r = len(members), members.place
    return [(chunks[(r - step - 1) % n], chunks[(r - step - 2) % n]) for step in range(n - 1)]


def _spreading(chunks: list[torch.Tensor], members: Members) -> list[Hop]:
    """The hops of all-gather."""
    n, r = len(members), members.place
    return [(chunks[(r - step) % n], chunks[(r - step - 1) % n]) for step in range(n - 1)]


def _travel(adding: list[Hop], copying: list[Hop], members: Members) -> None:
    """Make the hops; what arrives is added to its chunk in the first ones, then replaces it."""
    hops = adding or copying
    if hops and hops[0][0].numel():
        # gloo moves any number of messages at once. NCCL makes one wait for the other unless they
        # are one batch.
        travel = pipelined if hops[0][0].device.type == "cpu" else one_by_one
        travel(adding, copying, members)


def one_by_one(adding: list[Hop], copying: list[Hop], members: Members) -> None:
    """The algorithm as the papers tell it: send and receive, wait for both, add."""
    n, r = len(members), members.place
    for i, (outgoing, incoming) in enumerate(adding + copying):
        add = i < len(adding)
        arrived = torch.empty_like(incoming) if add else incoming
        for work in members.start_exchange(outgoing, (r + 1) % n, arrived, (r - 1) % n):
            work.wait()
        if add:
            incoming += arrived


def pipelined(
    adding: list[Hop],
    copying: list[Hop],
    members: Members,
    *,
    segment_bytes: int = SEGMENT_BYTES,
) -> None:
    """The same hops in segments, so that sending, receiving and adding go on at the same time.

    Receives are posted as early as can be, since a sender whose receiver waits already need not
    ask. What is to be added lands in one buffer, which is then still in the processor's cache.
    """
    n, r, group = len(members), members.place, members.group
    left, right = members.ranks[(r - 1) % n], members.ranks[(r + 1) % n]
    hops = len(adding) + len(copying)
    adding, copying = _in_segments(adding, segment_bytes), _in_segments(copying, segment_bytes)
    pieces, sums = adding + copying, len(adding)
    # A piece leaves as it arrived one step before. Where a step has several pieces, two are under
    # way, so that one travels while the other is added up.
    lead = 2 if len(pieces) > hops else 1
    buffer = torch.empty_like(adding[0][1]) if adding else None
    landings = [buffer[: incoming.numel()] for _, incoming in adding]
    landings += [incoming for _, incoming in copying]
    # Finished work stays in these lists, since letting go of it waits for gloo's own thread.
    receives: list[dist.Work] = []
    sends: list[dist.Work] = []

    def post(stop: int) -> None:
        receives.extend(
            dist.irecv(landing, group=group, group_src=left)
            for landing in landings[len(receives) : stop]
        )

    def send(stop: int) -> None:
        sends.extend(
            dist.isend(outgoing, group=group, group_dst=right)
            for outgoing, _ in pieces[len(sends) : stop]
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
