"""What a collective costs on a cluster: an algorithm of `costs.py` over the link it has to cross.

A flat algorithm moves at the pace of its slowest link, so over several nodes the network sets it.
A hierarchical one does most of its work inside the nodes, and uses all of a node's adapters.
"""

from collections.abc import Sequence

from . import costs
from .cluster import Cluster

ALGORITHMS: dict[str, dict[str, costs.Cost]] = {
    "all_reduce": {
        "ring": costs.ring_all_reduce,
        "tree": costs.tree_all_reduce,
        "halving_doubling": costs.halving_doubling_all_reduce,
        "recursive_doubling": costs.recursive_doubling_all_reduce,
        "gather_broadcast": costs.gather_broadcast_all_reduce,
    },
    "reduce_scatter": {
        "ring": costs.ring_reduce_scatter,
        "halving": costs.halving_reduce_scatter,
    },
    "all_gather": {"ring": costs.ring_all_gather, "doubling": costs.doubling_all_gather},
    "broadcast": {"binomial": costs.binomial_broadcast},
    "reduce": {"binomial": costs.binomial_reduce},
    "scatter": {"binomial": costs.binomial_scatter},
    "gather": {"binomial": costs.binomial_scatter},  # a scatter run backwards
    "all_to_all": {"pairwise": costs.pairwise_all_to_all},
    "barrier": {"dissemination": costs.dissemination_barrier},
}


def collective_seconds(
    cluster: Cluster,
    op: str,
    ranks: Sequence[int],
    nbytes: float,
    algorithm: str | None = None,
    gamma: float = 0.0,
) -> float:
    """Seconds of one collective over `ranks` of `cluster`.

    nbytes     the whole tensor, as in `costs.py`: all the shards of an all_gather together
    algorithm  a name in `ALGORITHMS[op]`, the first one if left out; "hierarchical" for all_reduce
    gamma      seconds per byte to add, where the sum does not hide behind the wire
    """
    if op not in ALGORITHMS:
        raise ValueError(f"{op!r} is no collective known here: {', '.join(ALGORITHMS)}")
    if nbytes < 0:
        raise ValueError(f"{op} of {nbytes} bytes")
    if algorithm == "hierarchical" and op == "all_reduce":
        return hierarchical_all_reduce(cluster, ranks, nbytes, gamma)
    known = ALGORITHMS[op]
    if algorithm is not None and algorithm not in known:
        raise ValueError(f"{op} has no algorithm {algorithm!r}; there are {', '.join(known)}")
    cost = known[algorithm or next(iter(known))]
    link = cluster.slowest_link(ranks)
    beta = link.beta * (len(ranks) if link.shared else 1)  # all ranks send at once, on one wire
    return cost(len(ranks), nbytes, link.alpha, beta, gamma)


def hierarchical_all_reduce(
    cluster: Cluster, ranks: Sequence[int], nbytes: float, gamma: float = 0.0
) -> float:
    """Reduce-scatter inside each node, all-reduce of the shards across nodes, all-gather inside.

    All three by rings. With g devices a node, each carries a g-th across the network, all at the
    same time: they share the node's adapters, and none can use more than one.
    """
    members: dict[int, int] = {}
    for rank in ranks:
        members[cluster.node(rank)] = members.get(cluster.node(rank), 0) + 1
    sizes = set(members.values())
    if len(sizes) != 1:
        raise ValueError(
            f"nodes with {' and '.join(map(str, sorted(sizes)))} of the ranks: a hierarchical"
            " all-reduce needs the same number on each"
        )
    g, inside, between = sizes.pop(), cluster.inside, cluster.between
    sharing = max(1.0, g / cluster.adapters)
    return (
        costs.ring_reduce_scatter(g, nbytes, inside.alpha, inside.beta, gamma)
        + costs.ring_all_reduce(
            len(members), nbytes / g, between.alpha, between.beta * sharing, gamma
        )
        + costs.ring_all_gather(g, nbytes, inside.alpha, inside.beta)
    )
