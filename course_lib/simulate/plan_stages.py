"""The layers and the parameters that a stage of a mesh gets."""

from collections.abc import Sequence
from dataclasses import dataclass

from course_lib.techniques.mesh import Mesh

from .transformer import Transformer


@dataclass(frozen=True)
class Held:
    """Parameters of a device before any ZeRO: `experts` in its experts, `dense` all others."""

    dense: float
    experts: float = 0.0

    @property
    def total(self) -> float:
        return self.dense + self.experts

    def shard(self, mesh: Mesh) -> float:
        """What is left of them where all ranks that hold the same share them."""
        return self.dense / replicas(mesh) + self.experts / expert_replicas(mesh)


def replicas(mesh: Mesh) -> int:
    """Ranks with the same parameters: those of the data and of the context axis."""
    return mesh.data * mesh.context


def expert_replicas(mesh: Mesh) -> int:
    """Ranks with the same experts."""
    return replicas(mesh) // mesh.expert


def stage_layers(layers: int, stages: int, uneven: bool = False) -> list[int] | None:
    """Layers of each stage: equally many, or one less on the first and the last; None if neither.

    The second form counts embedding and output layer as a layer each (Llama 3: 126 on 16 stages).
    uneven: otherwise the first stages have one more, as long as each has one.
    """
    if layers % stages == 0:
        return [layers // stages] * stages
    if stages > 1 and (layers + 2) % stages == 0 and layers + 2 >= 2 * stages:
        share = (layers + 2) // stages
        return [share - 1, *[share] * (stages - 2), share - 1]
    if uneven and stages <= layers:
        share, more = divmod(layers, stages)
        return [share + (stage < more) for stage in range(stages)]
    return None


def stage_parameters(model: Transformer, layers: Sequence[int], mesh: Mesh) -> list[Held]:
    """Of a device of each stage; the output layer has its own copy of the embedding."""
    dense = [float(count * model.dense_parameters) for count in layers]
    dense[0] += (model.vocab + model.seq) * model.hidden
    if len(layers) > 1:
        dense[-1] += model.vocab * model.hidden
    experts = model.expert_parameters / mesh.tensor / mesh.expert
    return [
        Held(parameters / mesh.tensor, count * experts)
        for parameters, count in zip(dense, layers, strict=True)
    ]
