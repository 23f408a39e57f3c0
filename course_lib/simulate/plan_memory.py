"""What one way to train on a mesh takes of the device that holds most.

Model states by Rajbhandari et al., "ZeRO", SC 2020; activations by Korthikanti et al. 2022.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from course_lib.techniques.mesh import Mesh

from .memory_formulas import Recompute, StateBytes, model_state_bytes
from .plan_stages import Held, expert_replicas, replicas
from .planner_assumptions import Software
from .transformer import Transformer


@dataclass(frozen=True)
class Footprint:
    """Bytes on the device that holds most."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float

    def with_activations(self, nbytes: float) -> "Footprint":
        """The same device with so many bytes of activations."""
        return Footprint(self.parameters, self.gradients, self.optimizer, nbytes)

    @property
    def states(self) -> float:
        """Parameters, gradients and the optimizer's states."""
        return self.parameters + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """All of it."""
        return self.states + self.activations


def in_flight(stage: int, stages: int, chunks: int, microbatches: int) -> float:
    """Microbatches that a stage holds at once, in units of all its layers (1F1B, interleaved).

    On the first: p, and p + (p-1)/v with v chunks (Korthikanti et al., section 4.2.3).
    """
    ahead = stages - stage if chunks == 1 else stages + (stages - 1 - 2 * stage) / chunks
    return min(max(ahead, 1), microbatches)


def saved_by_stage(
    model: Transformer,
    software: Software,
    mesh: Mesh,
    layers: Sequence[int],
    micro_batch: int,
    microbatches: int,
    chunks: int,
    recompute: Recompute,
) -> dict[int, float]:
    """Activations in bytes of those stages that can hold most: the first two and the last.

    Besides what layers save for their backward: with full recomputation one layer's worth of it
    again; keys and values from other ranks, of one layer, where a sequence is cut; on the last
    stage its output, normalised, and the logits in fp32, 4 sbh (1 + V/h) / t.
    """
    layer = software.saved_bytes(model, micro_batch, mesh.tensor, recompute) / mesh.context
    working = 0.0
    if recompute == "full":
        working = software.saved_bytes(model, micro_batch, mesh.tensor, "none") / mesh.context
    if mesh.context > 1:
        working += _foreign_keys(model, software, mesh, micro_batch)
    tokens = micro_batch * model.seq / mesh.context
    saved = {}
    for stage in {0, min(1, mesh.pipeline - 1), mesh.pipeline - 1}:
        flying = in_flight(stage, mesh.pipeline, chunks, microbatches)
        saved[stage] = layer * layers[stage] * flying + working
    saved[mesh.pipeline - 1] += 4 * tokens * (model.hidden + model.vocab) / mesh.tensor
    return saved


def _foreign_keys(model: Transformer, software: Software, mesh: Mesh, micro_batch: int) -> float:
    """Bytes of keys and values: a part at work and one that arrives, or those of all ranks."""
    whole = 4 * micro_batch * model.seq * model.kv_width / mesh.tensor
    return 2 * whole / mesh.context if software.ring_attention else whole


def footprint(held: Held, mesh: Mesh, zero: int, states: StateBytes, gathered: float) -> Footprint:
    """A device of a stage that holds so many parameters, before there are activations.

    Each kind is sharded over the ranks that hold the same: experts over fewer than the rest.

    gathered: parameters that travel at once, as of a layer. From stage 2 on their gradients, at
    stage 3 they themselves, exist whole while they are at work, and as many more so that
    communication can overlap.
    """
    parameters, gradients, optimizer = (
        model_state_bytes(held.dense, replicas(mesh), zero, part)
        + model_state_bytes(held.experts, expert_replicas(mesh), zero, part)
        for part in _kinds(states)
    )
    if replicas(mesh) > 1 and zero == 3:
        parameters += 2 * states.parameter * gathered
    if replicas(mesh) > 1 and zero >= 2:
        gradients += 2 * states.gradient * gathered
    return Footprint(parameters, gradients, optimizer, activations=0.0)


@cache
def _kinds(states: StateBytes) -> tuple[StateBytes, StateBytes, StateBytes]:
    """Parameters, gradients and the optimizer's states, each by itself."""
    return (
        StateBytes(states.parameter, 0, 0),
        StateBytes(0, states.gradient, 0),
        StateBytes(0, 0, states.optimizer),
    )
