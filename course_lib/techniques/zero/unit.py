"""A unit of ZeRO stage 3: parameters that are whole together, and only while they are needed.

Between uses, this rank keeps its shard, and each parameter is the 1-D piece of it in that shard.
`gather` makes the parameters whole, `free` gives the memory back.

Autograd keeps views of parameters between forward and backward. They share a storage with the
buffer, so the storage itself is emptied and filled again, as FSDP does: what autograd kept is then
whole again when backward reads it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib.techniques.collectives.torch_compat import all_gather_single

from .flat_shards import FlatShards, by_kind
from .zero2 import Bucket


class Unit:
    """The parameters of one module, trainable and frozen ones in buffers of their own.

    name: of the module, for the spans.
    shards: this rank's shard of each buffer, (shard_numel,).
    buckets: of the trainable ones, which come first among the buffers.
    forwards: calls whose backward pass is still to come.
    in_backward: between the first gradient of its outputs and the last of its inputs.
    sent: whether its gradients have left in this backward pass of the model.
    """

    def __init__(
        self, name: str, parameters: list[nn.Parameter], group: dist.ProcessGroup | None
    ) -> None:
        self.name = name or "model"
        trainable = by_kind(p for p in parameters if p.requires_grad)
        frozen = by_kind(p for p in parameters if not p.requires_grad)
        self.flats = [FlatShards(kind, group) for kind in trainable + frozen]
        self.buckets = [Bucket(flat) for flat in self.flats[: len(trainable)]]
        self.wholes = [flat.join(flat.parameters) for flat in self.flats]
        pairs = list(zip(self.flats, self.wholes, strict=True))
        self.shards = [flat.own(whole).clone() for flat, whole in pairs]
        self.views = [flat.views(whole) for flat, whole in pairs]
        self.gathering: list[dist.Work] | None = None
        self.whole = True
        self.forwards = 0
        self.in_backward = False
        self.sent = False
        self.free()

    def frozen(self) -> list[tuple[FlatShards, torch.Tensor]]:
        """Layout and shard of the parameters that are not trained."""
        both = list(zip(self.flats, self.shards, strict=True))
        return both[len(self.buckets) :]

    def start_gather(self) -> None:
        """Begin to make the parameters whole, if they are not."""
        if self.whole or self.gathering is not None:
            return
        self.gathering = []
        with record_function(f"all-gather {self.name}"):
            for flat, whole, shard in zip(self.flats, self.wholes, self.shards, strict=True):
                whole.untyped_storage().resize_(whole.nbytes)
                self.gathering.append(
                    all_gather_single(whole, shard, group=flat.group, async_op=True)
                )

    def gather(self) -> None:
        """Make the parameters whole, and wait until they are."""
        self.start_gather()
        for work in self.gathering or ():
            work.wait()
        if not self.whole:
            for flat, views in zip(self.flats, self.views, strict=True):
                for parameter, view in zip(flat.parameters, views, strict=True):
                    parameter.data = view
        self.gathering, self.whole = None, True

    def free(self) -> None:
        """Leave of each parameter the piece on this rank."""
        if self.gathering is not None:
            self.gather()
        if self.whole:
            for flat, shard in zip(self.flats, self.shards, strict=True):
                for parameter, piece in zip(flat.parameters, flat.pieces(shard), strict=True):
                    parameter.data = piece
            for whole in self.wholes:
                whole.untyped_storage().resize_(0)
        self.whole = False


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
    for parameter, places in homes.items():
        found[places.pop() if len(places) == 1 else model].append(parameter)
    return {m: parameters for m, parameters in found.items() if parameters or m is model}


def blocks(model: nn.Module) -> list[nn.Module]:
    """The modules that are gathered one at a time if no others are named.

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
