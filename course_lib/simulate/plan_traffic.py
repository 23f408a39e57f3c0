"""What the ranks of a mesh send each other, in seconds: rings, sends, swaps, and ZeRO's gathers.

A ring through the devices of several nodes leaves each node once, by one adapter, and comes in by
one. Its steps follow each other without a pause, so that what counts of a long one is

    latency      of all its hops, most of them inside nodes (NCCL, src/graph/tuning.cc, reckons so)
    bandwidth    of its narrowest hop: the adapters that its group has, or the links in the node

Hundreds of ranks with small shards pay for the first, few ranks with large ones for the second.
"""

from dataclasses import dataclass, field

from course_lib.techniques.mesh import Mesh

from .cluster import Cluster
from .memory_formulas import StateBytes
from .plan_stages import Held, expert_replicas, replicas


def ring_seconds(
    cluster: Cluster, ranks: int, apart: int, nbytes: float, rings: int, messages: int = 1
) -> float:
    """A reduce-scatter, or an all-gather, of `nbytes` in all by rings; an all-reduce is both.

    apart     how far one of the ranks is from the next, as a rank number; the groups between them
              do the same at the same time, and share the adapters
    rings     that the software makes: as many adapters as a group can use, if it has a device for
              each on the node
    messages  in which the bytes travel, one after the other

    (p-1)/p of the bytes pass each rank (Patarasuk & Yuan 2009).
    """
    if ranks == 1:
        return 0.0
    nodes = nodes_of_group(cluster, ranks, apart)
    inside = _on_a_node(cluster, ranks, apart)
    near, far = cluster.inside, cluster.between
    speed = near.ring_bandwidth
    if nodes > 1:
        groups = cluster.devices_per_node / inside
        reached = min(rings, inside, cluster.adapters / groups) * far.ring_bandwidth
        speed = min(speed, reached) if inside > 1 else reached
    latency = (nodes - 1) * far.latency + (ranks - nodes) * near.latency
    return messages * latency + (ranks - 1) / ranks * nbytes / speed


def send_seconds(cluster: Cluster, mesh: Mesh, nbytes: float, reached: float = 1.0) -> float:
    """One microbatch from a stage to the next: each tensor-parallel rank sends its part.

    reached: share of an adapter's bandwidth. The scatter/gather optimization of Narayanan et al.
    2021, section 4.1, without the gather inside the node, which takes a tenth as long.
    """
    part = nbytes / mesh.tensor
    if mesh.world_size <= cluster.devices_per_node:
        return cluster.inside.seconds(part)
    return cluster.between.alpha + part / (reached * _adapter_bandwidth(cluster))


def swap_seconds(
    cluster: Cluster, ranks: int, apart: int, nbytes: float, crossing: float = 1.0
) -> float:
    """An all-to-all in which each rank has `nbytes` to give, to all alike, itself included.

    What stays on the node and what leaves it move at the same time, the second by the adapters that
    the devices of a node share. All messages are under way at once (NCCL's grouped sends), so that
    latency counts once.

    crossing  of what leaves the node, the share that crosses the network: less than 1 where what
              goes to several devices of a node travels there once
    """
    if ranks == 1:
        return 0.0
    inside = _on_a_node(cluster, ranks, apart)
    near = nbytes * (inside - 1) / ranks / cluster.inside.ring_bandwidth
    far = crossing * nbytes * (ranks - inside) / ranks / _adapter_bandwidth(cluster)
    latency = cluster.between.latency if inside < ranks else cluster.inside.latency
    return latency + max(near, far)


def nodes_of_group(cluster: Cluster, ranks: int, apart: int) -> int:
    """Over how many nodes a group is spread."""
    return -(-ranks // _on_a_node(cluster, ranks, apart))


def _on_a_node(cluster: Cluster, ranks: int, apart: int) -> int:
    """How many of a group's ranks are on one node."""
    return max(1, min(ranks, cluster.devices_per_node // apart))


def _adapter_bandwidth(cluster: Cluster) -> float:
    """What a device has of its node's adapters, no more than one of them."""
    return min(1.0, cluster.adapters / cluster.devices_per_node) * cluster.between.bandwidth


@dataclass(frozen=True)
class Replicas:
    """Data parallelism of a stage: what a device holds in `layers`, and how that travels.

    gathers     of stage 3 with each microbatch: one for each pass through the layers
    forward,    seconds of computation of one microbatch that hide communication; 0 where the
    backward    software does not overlap
    known       seconds of rings by their bytes for each parameter: the same for all microbatches
    """

    cluster: Cluster
    mesh: Mesh
    held: Held
    layers: int
    rings: int
    messages: int
    gathers: int
    forward: float
    backward: float
    known: dict[float, float] = field(default_factory=dict, compare=False, repr=False)

    def seconds(self, zero: int, states: StateBytes, microbatches: int) -> float:
        """What is sent in a step, beyond what hides behind computation.

        Stages 0 and 1 reduce gradients once per step, behind the last backward, and stages 1 and 2
        gather parameters behind the first forward. From stage 2 on gradients are reduced with each
        microbatch, since nobody has room to add them up whole, and nothing hides them. Stage 3
        gathers with each microbatch, a layer ahead of the computation (Rajbhandari et al. 2020,
        section 7). What travels with each microbatch takes memory's time besides.
        """
        if replicas(self.mesh) == 1:
            return 0.0
        reduced, gathered = self._ring(states.gradient), self._ring(states.parameter)
        if zero == 0:
            return max(0.0, 2 * reduced - self.backward)
        if zero == 1:
            return max(0.0, reduced - self.backward) + max(0.0, gathered - self.forward)
        reduced += self._copies(states.gradient)
        if zero == 2:
            return microbatches * reduced + max(0.0, gathered - self.forward)
        ahead = max(0.0, self.gathers * gathered - self.forward - self.backward)
        return microbatches * (reduced + ahead + self.gathers * self._copies(states.parameter))

    def _copies(self, nbytes: float) -> float:
        """Memory's part in a ring of so many bytes for each parameter: four passes over them.

        What arrives is written, and read to be passed on; and it is copied, read and written, from
        the buffer of the collective to where it is used, or gradients into that buffer (FSDP2's
        all_gather_copy_out and reduce_scatter_copy_in; DeepSpeed copies too, stage3.py).
        """
        return 4 * self.held.total * nbytes / self.cluster.device.memory_bandwidth

    def _ring(self, nbytes: float) -> float:
        """Of so many bytes for each parameter: experts go round among fewer ranks than the rest."""
        if nbytes not in self.known:
            self.known[nbytes] = self._ring_seconds(nbytes)
        return self.known[nbytes]

    def _ring_seconds(self, nbytes: float) -> float:
        mesh = self.mesh
        messages = self.messages * self.layers
        dense = ring_seconds(
            self.cluster,
            replicas(mesh),
            mesh.tensor,
            self.held.dense * nbytes,
            self.rings,
            messages,
        )
        if not self.held.experts:
            return dense
        apart = mesh.tensor * mesh.context * mesh.expert
        return dense + ring_seconds(
            self.cluster,
            expert_replicas(mesh),
            apart,
            self.held.experts * nbytes,
            self.rings,
            messages,
        )
