"""A unit of ZeRO stage 3: parameters that are whole together, and only while they are needed.

Between uses this rank keeps its shard, and each parameter is the 1-D piece of it in that shard.
`unshard` makes the parameters whole, `reshard` gives the memory back.

Autograd keeps views of parameters between forward and backward. They share a storage with the
buffer, so the storage itself is emptied and filled again, as FSDP does: what autograd kept is then
whole again when backward reads it.
"""

from collections.abc import Iterator, Mapping
from enum import Enum, auto
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib.techniques.collectives.torch_compat import all_gather_single

from .flat_shards import FlatShards, by_kind
from .scattered_buckets import ScatteredBucket


class ShardedState(Enum):
    """What the parameters of a unit are at the moment; called so in FSDP2 too."""

    SHARDED = auto()  # each the piece of it on this rank
    UNSHARDING = auto()  # the all-gather is under way
    UNSHARDED = auto()  # whole


class TrainingState(Enum):
    """Where a unit is between one forward pass and the next.

    FSDP2 has an enum of that name, whose PRE_BACKWARD is BACKWARD here.
    """

    IDLE = auto()  # no backward pass is to come
    FORWARD = auto()  # was called, and backward is to come
    BACKWARD = auto()  # between the first gradient of its outputs and the last of its inputs
    POST_BACKWARD = auto()  # its gradients have left


class Unit:
    """The parameters of one module, trainable and frozen ones in buffers of their own.

    name: of the module, for the spans.
    shards: this rank's shard of each buffer, (shard_numel,).
    buckets: of the trainable ones, which come first among the buffers.
    calls: forward passes whose backward is to come.
    """

    def __init__(
        self, name: str, parameters: list[nn.Parameter], group: dist.ProcessGroup | None
    ) -> None:
        self.name = name or "model"
        trainable = by_kind(p for p in parameters if p.requires_grad)
        frozen = by_kind(p for p in parameters if not p.requires_grad)
        self.flats = [FlatShards(kind, group) for kind in trainable + frozen]
        self.buckets = [ScatteredBucket(flat) for flat in self.flats[: len(trainable)]]
        self.wholes = [flat.join(flat.parameters) for flat in self.flats]  # (padded,) each
        pairs = list(zip(self.flats, self.wholes, strict=True))
        self.shards = [flat.own(whole).clone() for flat, whole in pairs]
        self.views = [flat.views(whole) for flat, whole in pairs]
        self.under_way: list[dist.Work] = []
        self.sharded_state, self.training_state, self.calls = (
            ShardedState.UNSHARDED,
            TrainingState.IDLE,
            0,
        )
        self.reshard()

    def frozen(self) -> list[tuple[FlatShards, torch.Tensor]]:
        """Layout and shard of the parameters that are not trained."""
        both = list(zip(self.flats, self.shards, strict=True))
        return both[len(self.buckets) :]

    def start_unshard(self) -> None:
        """Begin to make the parameters whole, if they are not."""
        if self.sharded_state is not ShardedState.SHARDED:
            return
        with record_function(f"all-gather {self.name}"):
            for flat, whole, shard in zip(self.flats, self.wholes, self.shards, strict=True):
                whole.untyped_storage().resize_(whole.nbytes)
                self.under_way.append(
                    all_gather_single(whole, shard, group=flat.group, async_op=True)
                )
        self.sharded_state = ShardedState.UNSHARDING

    def unshard(self) -> None:
        """Make the parameters whole, and wait until they are."""
        self.start_unshard()
        if self.sharded_state is ShardedState.UNSHARDED:
            return
        for work in self.under_way:
            work.wait()
        for flat, views in zip(self.flats, self.views, strict=True):
            for parameter, view in zip(flat.parameters, views, strict=True):
                parameter.data = view
        self.under_way, self.sharded_state = [], ShardedState.UNSHARDED

    def reshard(self) -> None:
        """Leave of each parameter the piece on this rank."""
        if self.sharded_state is ShardedState.SHARDED:
            return
        self.unshard()  # what is under way has to arrive first
        for flat, shard in zip(self.flats, self.shards, strict=True):
            for parameter, piece in zip(flat.parameters, flat.pieces(shard), strict=True):
                parameter.data = piece
        for whole in self.wholes:
            whole.untyped_storage().resize_(0)
        self.sharded_state = ShardedState.SHARDED


def divide(model: nn.Module, modules: list[nn.Module]) -> dict[nn.Module, list[nn.Parameter]]:
    """The parameters of each of `modules`, and under `model` those of no other.

    A parameter belongs to the innermost of the modules around it; one that is tied between several
    of them to the model as a whole.
    """
    homes: dict[nn.Parameter, set[nn.Module]] = {}

    def walk(module: nn.Module, home: nn.Module) -> None:
        home = module if module in modules else home
        for parameter in module.parameters(recurse=False):
            homes.setdefault(parameter, set()).add(home)
        for child in module.children():
            walk(child, home)

    walk(model, model)
    found: dict[nn.Module, list[nn.Parameter]] = {module: [] for module in [model, *modules]}
    for parameter, around in homes.items():
        found[around.pop() if len(around) == 1 else model].append(parameter)
    return {m: parameters for m, parameters in found.items() if parameters or m is model}


def blocks(model: nn.Module) -> list[nn.Module]:
    """The modules that are unsharded one at a time if no others are named.

    They are the children of the model, with a ModuleList opened: a GPT's embedding, each of its
    blocks, and its head.
    """
    found: list[nn.Module] = []
    for child in model.children():
        found += child if isinstance(child, nn.ModuleList) else [child]
    return list(dict.fromkeys(found))


def tensors_in(tree: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, Mapping):
        yield from tensors_in(tuple(tree.values()))
    elif isinstance(tree, tuple | list):
        for branch in tree:
            yield from tensors_in(branch)
