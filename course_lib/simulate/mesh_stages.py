"""The layers and the parameters that a stage of a mesh gets."""

from collections.abc import Sequence

from .transformer import Transformer


def stage_layers(layers: int, stages: int) -> list[int] | None:
    """Layers of each stage: equally many, or one less on the first and the last; None if neither.

    The second form counts embedding and output layer as a layer each (Llama 3: 126 on 16 stages).
    """
    if layers % stages == 0:
        return [layers // stages] * stages
    if stages > 1 and (layers + 2) % stages == 0 and layers + 2 >= 2 * stages:
        share = (layers + 2) // stages
        return [share - 1, *[share] * (stages - 2), share - 1]
    return None


def stage_parameters(model: Transformer, layers: Sequence[int], tensor: int) -> list[float]:
    """Parameters of a device of each stage; the output layer has its own copy of the embedding."""
    layer = 12 * model.hidden**2 + 13 * model.hidden
    held = [count * layer for count in layers]
    held[0] += (model.vocab + model.seq) * model.hidden
    if len(layers) > 1:
        held[-1] += model.vocab * model.hidden
    return [parameters / tensor for parameters in held]
