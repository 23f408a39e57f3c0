"""All-reduce built from sends and receives: ring, tree, halving-doubling, and one for clusters.

To read in this order:

    members             who takes part, and how two of them swap messages
    ring                least bytes; pipelined_ring is what makes it fast
    tree                least messages
    halving_doubling    both, for powers of two
    hierarchical        inside the nodes first, then between them
    fusion              many small tensors travel as few large ones
    broadcast           an equal start
    torch_compat        collectives that torch renamed

Needs no neighbour.

With n ranks and a tensor of S bytes, a message of b bytes taking alpha + b beta seconds
(Thakur, Rabenseifner & Gropp 2005; Patarasuk & Yuan 2009):

    algorithm           messages one after another    time on the wire
    ring                2 (n - 1)                     2 (n - 1)/n S beta     least bytes possible
    halving-doubling    2 log2 n                      2 (n - 1)/n S beta     n a power of two
    tree                2 ceil(log2 n)                2 ceil(log2 n) S beta  least messages
    hierarchical        2 (L - 1) + 2 (n/L - 1)       of which between nodes, L ranks on each:
                                                      2 (n/L - 1)/(n/L) S/L beta

Every function takes the same tensor shape and dtype on all ranks of `group`, contiguous, and any
number of elements, none included. All-reduces work in place, as `dist.all_reduce` does, and return
the tensor. Sums come out bitwise equal on all ranks, since each element is added up on one rank
only and copied from there; they need not equal the sum in rank order to the last bit.
"""

from .broadcast import broadcast_state, broadcast_tensors
from .fusion import fused_all_reduce
from .halving_doubling import halving_doubling_all_reduce
from .hierarchical import hierarchical_all_reduce
from .ring import (
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
)
from .tree import tree_all_reduce, tree_broadcast

__all__ = [
    "broadcast_state",
    "broadcast_tensors",
    "fused_all_reduce",
    "halving_doubling_all_reduce",
    "hierarchical_all_reduce",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce_scatter",
    "tree_all_reduce",
    "tree_broadcast",
]
