"""Halving-doubling all-reduce: the ring's bytes in the tree's number of messages.

Recursive halving (reduce-scatter): swap half of the tensor with the partner n/2 away and add, then
a quarter with the one n/4 away, and so on. Recursive doubling (all-gather): the same way back. The
chunks whose sum rank r of eight is responsible for:

    start          0 1 2 3 4 5 6 7
    distance 4     the half with r's highest bit        rank 5 = 101:  4 5 6 7
    distance 2     the quarter with its next bit                       4 5
    distance 1     chunk r, complete                                   5

Cost for n a power of two: 2 log2 n alpha + 2 (n-1)/n S beta. For other n, p is the largest power of
two below; the first 2 (n - p) ranks pair up, one of each pair hands its tensor to the other before
and gets the sum after: 2 alpha + 2 S beta more.

Rabenseifner's algorithm, in Thakur, Rabenseifner & Gropp, "Optimization of collective communication
operations in MPICH", International Journal of High Performance Computing Applications 19(1), 2005.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from .members import Members, flat_view


def halving_doubling_all_reduce(
    tensor: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Sum `tensor` over the group, in place."""
    members = Members.of(group)
    flat = flat_view(tensor)
    n, r = len(members), members.rank
    if n == 1 or not flat.numel():
        return tensor
    p = 1 << (n.bit_length() - 1)
    paired = 2 * (n - p)  # ranks below this work in pairs
    if r < paired and r % 2 == 0:
        members.send(flat, r + 1)
        members.receive(flat, r + 1)
        return tensor
    if r < paired:
        arrived = torch.empty_like(flat)
        members.receive(arrived, r - 1)
        flat += arrived
    workers = [*range(1, paired, 2), *range(paired, n)]
    _among_power_of_two(
        flat,
        Members([members.ranks[w] for w in workers], workers.index(r), group),
    )
    if r < paired:
        members.send(flat, r - 1)
    return tensor


def _among_power_of_two(flat: torch.Tensor, members: Members) -> None:
    """Sum `flat` over `members`, whose number is a power of two, in place."""
    p, r = len(members), members.rank
    missing = -flat.numel() % p
    padded = F.pad(flat, (0, missing)) if missing else flat
    chunks = padded.view(p, -1)
    arrived = torch.empty_like(chunks[: p // 2])
    distances = [p >> level for level in range(1, p.bit_length())]  # p/2, ..., 2, 1

    start = 0  # chunks[start : start + 2 * distance] are mine so far
    for distance in distances:
        lower, upper = chunks[start : start + 2 * distance].split(distance)
        mine, theirs = (upper, lower) if r & distance else (lower, upper)
        members.exchange(theirs, arrived[:distance], r ^ distance)
        mine += arrived[:distance]
        start += r & distance
    for distance in reversed(distances):
        mine = chunks[start : start + distance]
        theirs = chunks[start ^ distance :][:distance]
        members.exchange(mine, theirs, r ^ distance)
        start &= ~distance

    if missing:
        flat.copy_(padded[: flat.numel()])
