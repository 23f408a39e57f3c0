"""How long a step takes on a mesh, by its parts: computing, waiting for stages, communication.

Formulas of Narayanan et al., SC 2021, sections 2 and 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from course_lib.techniques.mesh import Mesh

from .cluster import Cluster
from .layer_traffic import LayerTraffic
from .memory_formulas import Recompute, StateBytes
from .plan_stages import Held
from .plan_traffic import Replicas, send_seconds
from .planner_assumptions import Software
from .transformer import Transformer


@dataclass(frozen=True)
class StepTime:
    """Seconds of a training step. `bubble` is all waiting for other stages, uneven ones included.

    tensor, context, expert, pipeline, data: communication that no computation hides.
    update: the adding up of gradients, and the optimizer.
    """

    compute: float
    bubble: float
    tensor: float
    context: float
    expert: float
    pipeline: float
    data: float
    update: float

    @property
    def total(self) -> float:
        """The step."""
        waits = self.bubble + self.tensor + self.context + self.expert + self.pipeline + self.data
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
        held: Held,
        micro_batch: int,
        recompute: Recompute,
        rings: dict[float, float] | None = None,
        layer: "LayerSeconds | None" = None,
    ) -> None:
        """layers: of each stage. held: by the device that holds most. micro_batch: sequences.

        rings: what is `known` to the `Replicas` of the same mesh.
        layer: `layer_seconds`, if they are known from a mesh with the same axes inside a layer.
        """
        self.cluster, self.mesh, self.software = cluster, mesh, software
        self.whole, self.shard = held.total, held.shard(mesh)  # parameters
        self.message = 2 * micro_batch * model.seq * model.hidden / mesh.context  # 16 bits
        if layer is None:
            layer = layer_seconds(model, cluster, software, mesh, micro_batch, recompute)
        self.tensor = model.layers * layer.tensor  # of all stages together, as those below
        self.context = model.layers * layer.context
        self.expert = model.layers * layer.expert
        self.compute = model.layers * layer.compute + layer.logits
        one = layer.compute + layer.tensor + layer.context + layer.expert
        self.slowest = max(max(layers) * one, layers[-1] * one + layer.logits)
        forward = 1 / 4 if recompute == "full" else 1 / 3
        gradients = self.slowest if software.hides_gradients(mesh.pipeline) else 0.0
        self.replicas = Replicas(
            cluster,
            mesh,
            held,
            max(layers),
            software.rings,
            software.messages,
            software.gathers(model.dense_parameters / mesh.tensor, recompute),
            forward * (self.slowest if software.overlap else 0.0),
            (1 - forward) * gradients,
            {} if rings is None else rings,
        )
        self.send = send_seconds(cluster, mesh, self.message, software.sends)

    def step(self, microbatches: int, chunks: int, zero: int, states: StateBytes) -> StepTime:
        """A step of 1F1B, interleaved with `chunks` a rank.

        The slowest stage works without a pause; filling and emptying the pipeline takes as long as
        one microbatch does through the other stages, a v-th of that with v chunks.
        """
        p, m = self.mesh.pipeline, microbatches
        return StepTime(
            compute=m * self.compute / p,
            bubble=self._bubble(m, chunks),
            tensor=m * self.tensor / p,
            context=m * self.context / p,
            expert=m * self.expert / p,
            pipeline=self._sends(m, chunks) if p > 1 else 0.0,
            data=self.replicas.seconds(zero, states, m),
            update=self._update(m, zero, states),
        )

    def stages_seconds(self, microbatches: int, chunks: int) -> float:
        """The part of a step that all stages of ZeRO have in common."""
        p, m = self.mesh.pipeline, microbatches
        work = m * (self.compute + self.tensor + self.context + self.expert) / p
        return work + self._bubble(m, chunks) + (self._sends(m, chunks) if p > 1 else 0.0)

    def zero_seconds(self, microbatches: int, zero: int, states: StateBytes) -> float:
        """The other part, which any number of chunks has in common."""
        return self.replicas.seconds(zero, states, microbatches) + self._update(
            microbatches, zero, states
        )

    def _bubble(self, m: int, chunks: int) -> float:
        through = self.compute + self.tensor + self.context + self.expert
        idle = m * (self.slowest - through / self.mesh.pipeline)
        return max(0.0, idle + (through - self.slowest) / chunks)  # rounding may go below

    def _sends(self, m: int, chunks: int) -> float:
        """Each microbatch, chunk and direction is a send; only filling the pipeline cannot hide."""
        send = self.send
        hides = self.slowest / (2 * chunks) if self.software.overlap else 0.0
        return 2 * m * chunks * max(0.0, send - hides) + 2 * (self.mesh.pipeline - 1) * send

    def _update(self, m: int, zero: int, states: StateBytes) -> float:
        """Moves bytes only: gradients of m microbatches are summed, then all states rewritten."""
        added = (m - 1) * self.software.added_bytes(states)
        added *= self.shard if zero >= 2 else self.whole
        rewritten = 2 * states.total * (self.shard if zero else self.whole)
        return (added + rewritten) / self.cluster.device.memory_bandwidth


class LayerSeconds(NamedTuple):
    """Of a layer and one microbatch, forward and backward; `logits` is the output layer.

    tensor, context and expert are communication that no computation hides.
    """

    compute: float
    logits: float
    tensor: float
    context: float
    expert: float


def layer_seconds(
    model: Transformer,
    cluster: Cluster,
    software: Software,
    mesh: Mesh,
    micro_batch: int,
    recompute: Recompute,
) -> LayerSeconds:
    """On a mesh, of which only the tensor, context and expert axes matter here."""
    device = cluster.device
    traffic = LayerTraffic(model, cluster, software, mesh, micro_batch, recompute)
    layer = software.layer_seconds(model, device, micro_batch, mesh.tensor, recompute)
    logits = software.logits_seconds(model, device, micro_batch, mesh.tensor)
    return LayerSeconds(
        layer / mesh.context,
        logits / mesh.context,
        traffic.tensor(),
        traffic.context(),
        traffic.expert(),
    )
