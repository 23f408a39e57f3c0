"""How long a step takes on a mesh, by its parts: computing, waiting for stages, communication.

Formulas of Narayanan et al., SC 2021, sections 2 and 3, and Rajbhandari et al., SC 2020, section 7.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.techniques.mesh import Mesh

from . import costs
from .cluster import Cluster
from .memory import Recompute, StateBytes
from .software import Software
from .transformer import Transformer


@dataclass(frozen=True)
class StepTime:
    """Seconds of a training step. `bubble` is all waiting for other stages, uneven ones included.

    tensor, pipeline, data: communication that no computation hides. update: the optimizer.
    """

    compute: float
    bubble: float
    tensor: float
    pipeline: float
    data: float
    update: float

    @property
    def total(self) -> float:
        """The step."""
        waits = self.bubble + self.tensor + self.pipeline + self.data
        return self.compute + waits + self.update


class StageTimes:
    """Seconds that the stages of a mesh take for one microbatch, forward and backward."""

    def __init__(
        self,
        model: Transformer,
        cluster: Cluster,
        software: Software,
        mesh: Mesh,
        layers: Sequence[int],
        micro_batch: int,
        recompute: Recompute,
    ) -> None:
        """layers: of each stage. micro_batch: sequences."""
        self.cluster, self.mesh, self.overlap = cluster, mesh, software.overlap
        self.message = 2 * micro_batch * model.seq * model.hidden  # activations, 16 bits
        layer = software.layer_seconds(model, cluster.device, micro_batch, mesh.tensor, recompute)
        logits = software.logits_seconds(model, cluster.device, micro_batch, mesh.tensor)
        # Each layer reduces twice in its forward, its backward, and its second forward
        reduces = 6 if recompute == "full" else 4
        talk = reduces * 2 * scatter_seconds(cluster, mesh.tensor, 1, self.message)
        self.compute = model.layers * layer + logits  # of all stages together
        self.talk = model.layers * talk
        self.slowest = max(max(layers) * (layer + talk), layers[-1] * (layer + talk) + logits)

    def step(
        self, microbatches: int, chunks: int, zero: int, parameters: float, states: StateBytes
    ) -> StepTime:
        """A step of 1F1B, interleaved with `chunks` a rank. parameters: most of any device.

        The slowest stage works without a pause; filling and emptying the pipeline takes as long as
        one microbatch does through the other stages, a v-th of that with v chunks.
        """
        p, m = self.mesh.pipeline, microbatches
        through = self.compute + self.talk
        bubble = m * (self.slowest - through / p) + (through - self.slowest) / chunks
        update = 2 * states.total * parameters / self.cluster.device.memory_bandwidth
        hides = self.slowest if self.overlap else 0.0
        return StepTime(
            compute=m * self.compute / p,
            bubble=bubble,
            tensor=m * self.talk / p,
            pipeline=self._sends(m, chunks) if p > 1 else 0.0,
            data=data_seconds(self.cluster, self.mesh, parameters, zero, states, m, hides),
            update=update / (self.mesh.data if zero else 1),
        )

    def _sends(self, m: int, chunks: int) -> float:
        """Each microbatch, chunk and direction is a send; only filling the pipeline cannot hide."""
        send = send_seconds(self.cluster, self.mesh, self.message)
        hides = self.slowest / (2 * chunks) if self.overlap else 0.0
        return 2 * m * chunks * max(0.0, send - hides) + 2 * (self.mesh.pipeline - 1) * send


def scatter_seconds(cluster: Cluster, ranks: int, apart: int, nbytes: float) -> float:
    """A reduce-scatter, or an all-gather, by rings inside the nodes and shards across them.

    An all-reduce is one of each. `apart`: how far one of the ranks is from the next, as a rank
    number; the groups between them do the same at the same time, and share the adapters.
    """
    inside = max(1, min(ranks, cluster.devices_per_node // apart))
    nodes = -(-ranks // inside)
    near, far = cluster.inside, cluster.between
    sharing = max(1.0, cluster.devices_per_node / cluster.adapters)
    return costs.ring_all_gather(inside, nbytes, near.alpha, near.beta) + costs.ring_all_gather(
        nodes, nbytes / inside, far.alpha, far.beta * sharing
    )


def send_seconds(cluster: Cluster, mesh: Mesh, nbytes: float) -> float:
    """One microbatch from a stage to the next: each tensor-parallel rank sends its part.

    The scatter/gather optimization of section 4.1, without the gather that overlaps.
    """
    part = nbytes / mesh.tensor
    if mesh.world_size <= cluster.devices_per_node:
        return cluster.inside.seconds(part)
    sharing = max(1.0, cluster.devices_per_node / cluster.adapters)
    return cluster.between.alpha + part * cluster.between.beta * sharing


def data_seconds(
    cluster: Cluster,
    mesh: Mesh,
    parameters: float,
    zero: int,
    states: StateBytes,
    microbatches: int,
    hides: float,
) -> float:
    """What data parallelism sends in a step, beyond what hides behind computation.

    Gradients are reduced once a step; from stage 2 on with each microbatch, since nobody has room
    to add them up whole, and stage 3 gathers parameters twice a microbatch. `hides`: seconds of
    computation of one microbatch that can hide some of it.
    """
    if mesh.data == 1:
        return 0.0
    gradients = scatter_seconds(cluster, mesh.data, mesh.tensor, parameters * states.gradient)
    gathered = scatter_seconds(cluster, mesh.data, mesh.tensor, parameters * states.parameter)
    if zero == 0:
        return max(0.0, 2 * gradients - hides)
    if zero == 1:
        return max(0.0, gradients + gathered - hides)
    if zero == 2:
        return microbatches * max(0.0, gradients - hides) + gathered
    return microbatches * max(0.0, gradients + 2 * gathered - hides)
