"""What a collective costs: seconds by the alpha-beta-gamma model, one function per algorithm.

    time of one message of n bytes = alpha + n * beta           (Hockney's model)

Every function has the same five numbers, so that algorithms can be swapped, plotted and compared:

    p       ranks
    nbytes  the whole tensor in bytes: what a rank holds before a reduce, or after a gather
    alpha   seconds until the first byte of a message arrives (latency)
    beta    seconds per byte (1 / bandwidth); each rank sends and receives at the same time
    gamma   seconds per byte to add two tensors; 0 where the sum costs nothing beside the wire

Each sum has a latency term (how many messages follow one another), a bandwidth term (how many bytes
pass the busiest rank) and an arithmetic term. Sources stand in each docstring; "MPICH" is the
comment above the algorithm in that file of src/mpi/coll, by the authors of Thakur, Rabenseifner &
Gropp, "Optimization of Collective Communication Operations in MPICH", 2005.
"""

import math
from typing import Protocol


class Cost(Protocol):
    """A collective's time in seconds; all the functions below are of this kind."""

    def __call__(
        self, p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0
    ) -> float: ...


def message(nbytes: float, alpha: float, beta: float) -> float:
    """One message between two ranks: alpha + nbytes * beta."""
    return alpha + nbytes * beta


# ------------------------------------------------------------------------------------------------
# Halves of an all-reduce
# ------------------------------------------------------------------------------------------------


def ring_reduce_scatter(
    p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0
) -> float:
    """p - 1 steps around the ring, a p-th of the tensor in each (Patarasuk & Yuan 2009)."""
    return (p - 1) * alpha + nbytes * (p - 1) / p * (beta + gamma)


def ring_all_gather(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """As the reduce-scatter, without the additions (Patarasuk & Yuan 2009)."""
    return (p - 1) * alpha + nbytes * (p - 1) / p * beta


def halving_reduce_scatter(
    p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0
) -> float:
    """Recursive halving: n/2, n/4, ... to ever nearer partners (MPICH red_scat.c)."""
    return _power_of_two(p) * alpha + nbytes * (p - 1) / p * (beta + gamma)


def doubling_all_gather(
    p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0
) -> float:
    """Recursive doubling: pieces of n/p, 2n/p, ... n/2 (MPICH allgather.c)."""
    return _power_of_two(p) * alpha + nbytes * (p - 1) / p * beta


def binomial_scatter(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """The root hands half of the rest to each new helper (MPICH scatter.c)."""
    return math.ceil(math.log2(p)) * alpha + nbytes * (p - 1) / p * beta


# ------------------------------------------------------------------------------------------------
# One to all, all to one, all to all
# ------------------------------------------------------------------------------------------------


def binomial_broadcast(
    p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0
) -> float:
    """Whoever has the tensor hands it on, twice as many each time (MPICH bcast.c)."""
    return math.ceil(math.log2(p)) * message(nbytes, alpha, beta)


def binomial_reduce(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """The broadcast run backwards, with an addition at each level (MPICH reduce.c)."""
    return math.ceil(math.log2(p)) * (message(nbytes, alpha, beta) + nbytes * gamma)


def pairwise_all_to_all(
    p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0
) -> float:
    """p - 1 swaps of a p-th with one partner each (MPICH alltoall.c, long messages)."""
    return (p - 1) * alpha + nbytes * (p - 1) / p * beta


def dissemination_barrier(
    p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0
) -> float:
    """Tell the rank 1, 2, 4, ... further on, lg p rounds: Hensgen, Finkel & Manber 1988."""
    return math.ceil(math.log2(p)) * alpha


# ------------------------------------------------------------------------------------------------
# All-reduce
# ------------------------------------------------------------------------------------------------


def gather_broadcast_all_reduce(
    p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0
) -> float:
    """Everything to rank 0 and back, one message after the other through rank 0's port.

    Counted here rather than cited: rank 0 receives p - 1 tensors, adds each, sends p - 1 copies.
    """
    return (p - 1) * (2 * message(nbytes, alpha, beta) + nbytes * gamma)


def tree_all_reduce(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """Binomial reduce to rank 0, then binomial broadcast: the whole tensor at each of the levels.

    The standard textbook pair; not pipelined, unlike the double binary trees of Sanders, Speck &
    Träff 2009 that NCCL uses, which come near the ring's bandwidth.
    """
    levels = math.ceil(math.log2(p))
    return levels * (2 * message(nbytes, alpha, beta) + nbytes * gamma)


def ring_all_reduce(p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0) -> float:
    """Ring reduce-scatter, then ring all-gather: 2(p-1)/p of the tensor, the least there is.

    Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
    JPDC 69(2), 2009.
    """
    return ring_reduce_scatter(p, nbytes, alpha, beta, gamma) + ring_all_gather(
        p, nbytes, alpha, beta
    )


def recursive_doubling_all_reduce(
    p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0
) -> float:
    """The whole tensor swapped with lg p partners: for short messages (MPICH allreduce.c)."""
    return _power_of_two(p) * (message(nbytes, alpha, beta) + nbytes * gamma)


def halving_doubling_all_reduce(
    p: int, nbytes: float, alpha: float, beta: float, gamma: float = 0.0
) -> float:
    """Rabenseifner: recursive halving, then recursive doubling (MPICH allreduce.c).

    Where p is not a power of two the surplus ranks first hand their tensor to a neighbour and
    get the result back in the end, which costs two more messages of the whole tensor.
    """
    rounds = math.floor(math.log2(p))
    share = (p - 1) / p
    if 2**rounds == p:
        return 2 * rounds * alpha + nbytes * share * (2 * beta + gamma)
    return (2 * rounds + 2) * alpha + nbytes * ((2 * share + 2) * beta + (1 + share) * gamma)


# ------------------------------------------------------------------------------------------------
# Comparing
# ------------------------------------------------------------------------------------------------


def crossover(first: Cost, second: Cost, p: int, alpha: float, beta: float) -> float:
    """The tensor size in bytes at which `first` and `second` take equally long on p ranks.

    Both are straight lines in the size, so they meet at most once: `inf` where they do not.
    """
    latency = first(p, 0, alpha, beta) - second(p, 0, alpha, beta)
    slope = second(p, 1, 0.0, beta) - first(p, 1, 0.0, beta)
    if slope == 0 or latency / slope < 0:
        return math.inf
    return latency / slope


BUS_FACTORS = {
    "all_reduce": lambda p: 2 * (p - 1) / p,
    "reduce_scatter": lambda p: (p - 1) / p,
    "all_gather": lambda p: (p - 1) / p,
    "all_to_all": lambda p: (p - 1) / p,
    "gather": lambda p: (p - 1) / p,
    "scatter": lambda p: (p - 1) / p,
    "broadcast": lambda p: 1.0,
    "reduce": lambda p: 1.0,
    "send": lambda p: 1.0,
}


def bus_bandwidth(op: str, p: int, nbytes: float, seconds: float) -> float:
    """Bytes per second that the busiest link must have carried (nccl-tests, doc/PERFORMANCE.md).

    `nbytes` is the whole tensor, as everywhere in this file, for all_gather and reduce_scatter
    too. Comparable over world sizes and with the link's data sheet, where nbytes / seconds is not.
    """
    if op not in BUS_FACTORS:
        raise ValueError(f"no bus factor for {op!r}; known are {', '.join(BUS_FACTORS)}")
    return BUS_FACTORS[op](p) * nbytes / seconds


def _power_of_two(p: int) -> int:
    """lg p, for the algorithms whose formula holds only for powers of two."""
    rounds = p.bit_length() - 1
    if p < 1 or 2**rounds != p:
        raise ValueError(f"this algorithm's cost is known for powers of two; p = {p} is not one")
    return rounds
