"""All-reduce for a cluster: most bytes stay inside the nodes, where links are fast.

With L ranks on each node: reduce-scatter inside every node, so that each rank holds the node's sum
of one chunk; all-reduce that chunk among the ranks with the same local rank on every node;
all-gather inside every node. Two nodes of four:

    node 0   rank 0   1   2   3      1. reduce-scatter along each row
                  |   |   |   |      2. all-reduce down each column, a quarter of the tensor
    node 1   rank 4   5   6   7      3. all-gather along each row

A rank sends 2 (n-1)/n S in all, as in one ring over all ranks, but between nodes only
2 (N-1)/N S/L of it, with N = n/L nodes; and messages follow each other 2 (L-1) + 2 (N-1) times
instead of 2 (n-1).

Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash", arXiv 1811.05233
(2018), which calls it 2D-torus all-reduce.
"""

import math

import torch
import torch.distributed as dist

from .members import Members, flat_view
from .ring import (
    all_gather_chunks,
    cut,
    put_back,
    reduce_scatter_chunks,
    ring_all_reduce_members,
)


def hierarchical_all_reduce(
    tensor: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    *,
    ranks_per_node: int | None = None,
) -> torch.Tensor:
    """Sum `tensor` over the group, in place.

    Ranks 0 to ranks_per_node - 1 of the group share the first node, and so on, as torchrun counts
    them. Without `ranks_per_node`, the group is cut as squarely as its size allows, which makes the
    two rings shortest.
    """
    members = Members.of(group)
    n, r = len(members), members.rank
    per_node = ranks_per_node or _squarest(n)
    if n % per_node:
        raise ValueError(f"{n} ranks do not fill nodes of {per_node} ranks each")
    node, local = divmod(r, per_node)
    row = Members(members.ranks[node * per_node : (node + 1) * per_node], local, group)
    column = Members(members.ranks[local::per_node], node, group)

    flat = flat_view(tensor)
    chunks = cut(flat, per_node)
    reduce_scatter_chunks(chunks, row)
    ring_all_reduce_members(chunks[local], column)
    all_gather_chunks(chunks, row)
    put_back(chunks, flat)
    return tensor


def _squarest(n: int) -> int:
    """The largest divisor of n that is not above its square root."""
    return next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)
