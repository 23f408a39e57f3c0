"""Any optimizer of torch, over this rank's pieces of the parameters.

AdamW and SGD treat each element by itself, so N optimizers over N disjoint shards do exactly what
one does over all of it, each with an N-th of the state. Not so for optimizers that look at whole
parameters, such as LAMB or Muon.

With `master_dtype` the pieces are copies in that precision (the master weights of mixed precision,
which ZeRO shards with the rest of the optimizer's state), rounded to the model's after each step.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from course_lib.techniques.make_optimizer import MakeOptimizer

from .clipping import clip_grad_norm_
from .flat_shards import FlatShards, present_anywhere


class ShardedOptimizer:
    """The optimizer of this rank's shards.

    flats, shards: the layouts, and for each this rank's shard of the parameters, (shard_numel,),
        which `step` writes to.
    make_optimizer: builds the optimizer from groups of pieces.
    param_groups: groups of the model's parameters, each trainable one in exactly one of them, with
        the options that `make_optimizer` is to see.

    group: the ranks that the shards are spread over.

    ready: whether the pieces have their gradients.
    grouped: the model's parameters of each group.
    pieces: parameter -> this rank's piece of it, where there is one.
    """

    def __init__(
        self,
        flats: Sequence[FlatShards],
        shards: Sequence[torch.Tensor],
        make_optimizer: MakeOptimizer,
        param_groups: Sequence[Mapping[str, Any]],
        master_dtype: torch.dtype | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        self.group, self.ready = group, False
        self.flats, self.shards = list(flats), list(shards)
        self.masters = [shard.to(master_dtype or shard.dtype) for shard in self.shards]
        self.pieces: dict[nn.Parameter, nn.Parameter] = {}
        for flat, master in zip(self.flats, self.masters, strict=True):
            for parameter, piece in zip(flat.parameters, flat.pieces(master), strict=True):
                if piece.numel():
                    self.pieces[parameter] = nn.Parameter(piece)
        trainable = [parameter for flat in self.flats for parameter in flat.parameters]
        _check(param_groups, trainable)
        self.grouped = [[p for p in group["params"] if p.requires_grad] for group in param_groups]
        self.optimizer = make_optimizer([self._of_pieces(group) for group in param_groups])

    def _of_pieces(self, group: Mapping[str, Any]) -> dict[str, Any]:
        own = [self.pieces[p] for p in group["params"] if p in self.pieces]
        return {**group, "params": own}

    def set_gradients(
        self, gradients: Iterable[torch.Tensor | None], here: Collection[nn.Parameter]
    ) -> None:
        """Give the pieces their gradients, and None where no rank has one.

        gradients: the average over the ranks for each shard, in its shape; None stands for zeros.
            They may be made while this goes through them.
        here: the parameters that have a gradient on this rank.
        """
        trainable = [parameter for flat in self.flats for parameter in flat.parameters]
        present = present_anywhere(trainable, here, self.group)  # travels beside the gradients
        averages = list(gradients)
        anywhere = present()
        for flat, master, gradient in zip(self.flats, self.masters, averages, strict=True):
            average = torch.zeros_like(master) if gradient is None else gradient.to(master.dtype)
            for parameter, part in zip(flat.parameters, flat.pieces(average), strict=True):
                if parameter in self.pieces:
                    self.pieces[parameter].grad = part if parameter in anywhere else None
        self.ready = True

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Clip by the norm over the pieces of all ranks; returns that norm."""
        gradients = [piece.grad for piece in self.pieces.values() if piece.grad is not None]
        device = self.shards[0].device if self.shards else None
        return clip_grad_norm_(gradients, max_norm, self.group, device=device)

    def step(self) -> None:
        """Step the pieces, and give up their gradients."""
        self.optimizer.step()
        self.forget_gradients()

    def forget_gradients(self) -> None:
        for piece in self.pieces.values():
            piece.grad = None
        self.ready = False

    @torch.no_grad()
    def round_to_shards(self) -> None:
        """Write the masters to the shards, if they are copies."""
        for shard, master in zip(self.shards, self.masters, strict=True):
            if master is not shard:
                shard.copy_(master)

    def state_dict(self) -> dict[str, Any]:
        """What this rank would need to go on, at the same world size; nothing is copied."""
        return {
            "shard_numels": [master.numel() for master in self.masters],
            "rank": dist.get_rank(self.group),
            "parameters": self.masters,
            "optimizer": self.optimizer.state_dict(),
        }

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a `state_dict` of the same rank, world size and stage."""
        for key, own in self.state_dict().items():
            if key in ("shard_numels", "rank") and state[key] != own:
                raise ValueError(
                    f"the state has {key} = {state[key]} and this rank {own}: shards fit the rank, "
                    "world size and stage that they were made for"
                )
        for master, saved in zip(self.masters, state["parameters"], strict=True):
            master.copy_(saved)
        self.optimizer.load_state_dict(state["optimizer"])


def _check(groups: Sequence[Mapping[str, Any]], trainable: Sequence[nn.Parameter]) -> None:
    grouped = [parameter for group in groups for parameter in group["params"]]
    trained = [parameter for parameter in grouped if parameter.requires_grad]
    if len(set(trained)) != len(trained) or set(trained) != set(trainable):
        raise ValueError(
            f"param_groups name {len(trained)} trainable parameters, {len(set(trained))} of them "
            f"different, and the model has {len(trainable)}: each has to be in one group"
        )
