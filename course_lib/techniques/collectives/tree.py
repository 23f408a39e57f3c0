"""Tree all-reduce and broadcast: few messages one after another, all of them the whole tensor.

Ranks add up in pairs, then the sums in pairs of pairs (a binomial tree), and the total goes the
same way back. Eight ranks, 1 -> 0 for "rank 1 sends to rank 0":

    distance 1    1 -> 0    3 -> 2    5 -> 4    7 -> 6
    distance 2    2 -> 0              6 -> 4
    distance 4    4 -> 0                                  rank 0 has the sum; now backwards

Cost 2 ceil(log2 n) (alpha + S beta), against 2 (n-1) alpha + 2 (n-1)/n S beta of the ring.
Rank 0 sends the tensor ceil(log2 n) times, every other rank once on its way up and at most
ceil(log2 n) - 1 times on its way down.

Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH",
International Journal of High Performance Computing Applications 19(1), 2005.
"""

import torch
import torch.distributed as dist

from .members import Members, flat_view


def tree_all_reduce(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Sum `tensor` over the group, in place."""
    members = Members.of(group)
    flat = flat_view(tensor)
    if not flat.numel():
        return tensor
    n, r = len(members), members.rank
    arrived = torch.empty_like(flat)
    for distance in _distances(n):
        if r % (2 * distance) == distance:
            members.send(flat, r - distance)
        elif r % (2 * distance) == 0 and r + distance < n:
            members.receive(arrived, r + distance)
            flat += arrived
    return tree_broadcast(tensor, group)


def tree_broadcast(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """Copy group rank 0's tensor to the whole group, in place; those that have it double."""
    members = Members.of(group)
    flat = flat_view(tensor)
    n, r = len(members), members.rank
    for distance in reversed(_distances(n)) if flat.numel() else ():
        if r % (2 * distance) == distance:
            members.receive(flat, r - distance)
        elif r % (2 * distance) == 0 and r + distance < n:
            members.send(flat, r + distance)
    return tensor


def _distances(n: int) -> list[int]:
    """How far apart the two of a pair are, round by round: 1, 2, 4 for 5 to 8 ranks."""
    return [1 << level for level in range((n - 1).bit_length())]
