"""Activation checkpointing: keep less for the backward pass, and compute the rest again.

Backward needs what forward computed: n layers keep n layers' activations. Keep only the input of
every k-th layer, and run the k layers behind it once more when backward gets there:

    kept        n/k inputs  +  the activations of the k layers being run again
    computed    forward 1 + backward 2 + forward again 1 = 4 instead of 3: a third more

n/k + k is least for k = sqrt(n): 2 sqrt(n) instead of n (Chen et al., "Training Deep Nets with
Sublinear Memory Cost", arXiv 1604.06174, 2016, section 4). Or run again only what is large and
cheap, as attention's inside is: "selective" (Korthikanti et al., 2022, section 5).

The recomputing itself is `torch.utils.checkpoint`, which also restores the random state, so that
dropout drops the same. Needs no neighbour.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Segment(nn.Sequential):
    """Layers of which backward keeps only the input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(super().forward, x, use_reentrant=False)


def checkpoint_every(k: int, layers: Sequence[nn.Module]) -> nn.ModuleList:
    """`layers`, in segments of `k` (the last may be shorter): `blocks = checkpoint_every(2, ...)`.

    They run one after the other, each on the output of the one before.
    """
    if not 1 <= k <= len(layers):
        raise ValueError(f"k = {k} for {len(layers)} layers: it has to be from 1 to {len(layers)}")
    return nn.ModuleList(Segment(*layers[i : i + k]) for i in range(0, len(layers), k))


def best_segment(layers: int) -> int:
    """The k that keeps least, about sqrt(n): of n/k inputs and k layers' activations.

    Counts a layer's input like all its activations; where these are more, a smaller k is better.
    """
    if layers < 1:
        raise ValueError(f"{layers} layers, at least 1")
    return min(range(1, layers + 1), key=lambda k: (math.ceil(layers / k) + k, k))


def checkpoint_modules(modules: Iterable[nn.Module]) -> None:
    """Let each of `modules` keep only its inputs, in place: selective checkpointing.

    checkpoint_modules(block.attention for block in model.blocks)
    """
    for module in modules:
        module.forward = partial(checkpoint, module.forward, use_reentrant=False)


@dataclass
class Kept:
    """What autograd keeps for backward, as storages: address -> bytes."""

    storages: dict[int, int] = field(default_factory=dict)
    alive: list[torch.Tensor] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        return sum(self.storages.values())


@contextmanager
def kept_for_backward(model: nn.Module) -> Iterator[Kept]:
    """Notes what a forward pass inside keeps for backward, the model's own tensors aside.

    A storage counts once, however many saved tensors share it. What is computed again later does
    not count; it comes on top, one segment at a time.
    """
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    kept = Kept()

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept.storages[storage.data_ptr()] = storage.nbytes()
            kept.alive.append(tensor.detach())  # so that no other storage gets its address
        return tensor

    def unpack(tensor: Any) -> Any:
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield kept
    kept.alive.clear()
