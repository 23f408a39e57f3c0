"""What the ranks of a mesh send each other, in seconds: rings, sends, and ZeRO's gathers.

A ring through the devices of several nodes leaves each node once, by one adapter, and comes in by
one. Its steps follow each other without a pause, so that what counts of a long one is

    latency      of all its hops, most of them inside nodes (NCCL, src/graph/tuning.cc, reckons so)
    bandwidth    of its narrowest hop: the adapters that its group has, or the links in the node

Hundreds of ranks with small shards pay for the first, few ranks with large ones for the second.
"""

from dataclasses import dataclass

from course_lib.techniques.mesh import Mesh

from .cluster import Cluster
from .memory import StateBytes


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
    inside = max(1, min(ranks, cluster.devices_per_node // apart))
    nodes = -(-ranks // inside)
    near, far = cluster.inside, cluster.between
    speed = near.ring_bandwidth
    if nodes > 1:
        groups = cluster.devices_per_node / inside
        reached = min(rings, inside, cluster.adapters / groups) * far.ring_bandwidth
        speed = min(speed, reached) if inside > 1 else reached
    latency = (nodes - 1) * far.latency + (ranks - nodes) * near.latency
    return messages * latency + (ranks - 1) / ranks * nbytes / speed


def send_seconds(cluster: Cluster, mesh: Mesh, nbytes: float) -> float:
    """One microbatch from a stage to the next: each tensor-parallel rank sends its part.

    The scatter/gather optimization of Narayanan et al. 2021, section 4.1, without the gather that
    overlaps.
    """
    part = nbytes / mesh.tensor
    if mesh.world_size <= cluster.devices_per_node:
        return cluster.inside.seconds(part)
    sharing = max(1.0, cluster.devices_per_node / cluster.adapters)
    return cluster.between.alpha + part * cluster.between.beta * sharing


@dataclass(frozen=True)
class Replicas:
    """Data parallelism of a stage: `parameters` of a device in `layers`, and how they travel.

    gathers     of stage 3 with each microbatch: one for each pass through the layers
    forward,    seconds of computation of one microbatch that hide communication; 0 where the
    backward    software does not overlap
    """

    cluster: Cluster
    mesh: Mesh
    parameters: float
    layers: int
    rings: int
    messages: int
    gathers: int
    forward: float
    backward: float

    def seconds(self, zero: int, states: StateBytes, microbatches: int) -> float:
        """What is sent in a step, beyond what hides behind computation.

        Stages 0 and 1 reduce gradients once a step, behind the last backward, and stages 1 and 2
        gather parameters behind the first forward. From stage 2 on gradients are reduced with each
        microbatch, since nobody has room to add them up whole, and nothing hides them. Stage 3
        gathers with each microbatch, a layer ahead of the computation (Rajbhandari et al. 2020,
        section 7).
        """
        if self.mesh.data == 1:
            return 0.0
        reduced, gathered = self._ring(states.gradient), self._ring(states.parameter)
        if zero == 0:
            return max(0.0, 2 * reduced - self.backward)
        if zero == 1:
            return max(0.0, reduced - self.backward) + max(0.0, gathered - self.forward)
        if zero == 2:
            return microbatches * reduced + max(0.0, gathered - self.forward)
        ahead = max(0.0, self.gathers * gathered - self.forward - self.backward)
        return microbatches * (reduced + ahead)

    def _ring(self, nbytes: float) -> float:
        """Of so many bytes for each parameter."""
        return ring_seconds(
            self.cluster,
            self.mesh.data,
            self.mesh.tensor,
            self.parameters * nbytes,
            self.rings,
            self.messages * self.layers,
        )
