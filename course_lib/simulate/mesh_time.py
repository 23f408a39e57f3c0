"""How long a step takes on a mesh, by its parts: computing, waiting for stages, communication.

Formulas of Narayanan et al., SC 2021, sections 2 and 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.techniques.mesh import Mesh

from .cluster import Cluster
from .memory import Recompute, StateBytes
from .mesh_traffic import Replicas, ring_seconds, send_seconds
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
        parameters: float,
        micro_batch: int,
        recompute: Recompute,
    ) -> None:
        """layers: of each stage. parameters: most of any device. micro_batch: sequences."""
        self.cluster, self.mesh, self.overlap = cluster, mesh, software.overlap
        self.parameters = parameters
        self.message = 2 * micro_batch * model.seq * model.hidden  # activations, 16 bits
        layer = software.layer_seconds(model, cluster.device, micro_batch, mesh.tensor, recompute)
        logits = software.logits_seconds(model, cluster.device, micro_batch, mesh.tensor)
        ring = ring_seconds(cluster, mesh.tensor, 1, self.message, software.rings)
        talk = software.reduces(recompute) * 2 * ring  # an all-reduce is two rings
        self.compute = model.layers * layer + logits  # of all stages together
        self.talk = model.layers * talk
        self.slowest = max(max(layers) * (layer + talk), layers[-1] * (layer + talk) + logits)
        hides = self.slowest if self.overlap else 0.0
        forward = 1 / 4 if recompute == "full" else 1 / 3
        self.replicas = Replicas(
            cluster,
            mesh,
            parameters,
            max(layers),
            software.rings,
            software.messages,
            software.gathers(12 * model.hidden**2 / mesh.tensor, recompute),
            forward * hides,
            (1 - forward) * hides,
        )

    def step(self, microbatches: int, chunks: int, zero: int, states: StateBytes) -> StepTime:
        """A step of 1F1B, interleaved with `chunks` a rank.

        The slowest stage works without a pause; filling and emptying the pipeline takes as long as
        one microbatch does through the other stages, a v-th of that with v chunks.
        """
        p, m = self.mesh.pipeline, microbatches
        through = self.compute + self.talk
        bubble = m * (self.slowest - through / p) + (through - self.slowest) / chunks
        # Reads and writes all states once
        update = 2 * states.total * self.parameters / self.cluster.device.memory_bandwidth
        return StepTime(
            compute=m * self.compute / p,
            bubble=bubble,
            tensor=m * self.talk / p,
            pipeline=self._sends(m, chunks) if p > 1 else 0.0,
            data=self.replicas.seconds(zero, states, m),
            update=update / (self.mesh.data if zero else 1),
        )

    def _sends(self, m: int, chunks: int) -> float:
        """Each microbatch, chunk and direction is a send; only filling the pipeline cannot hide."""
        send = send_seconds(self.cluster, self.mesh, self.message)
        hides = self.slowest / (2 * chunks) if self.overlap else 0.0
        return 2 * m * chunks * max(0.0, send - hides) + 2 * (self.mesh.pipeline - 1) * send
