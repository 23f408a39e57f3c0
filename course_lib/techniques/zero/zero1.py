"""ZeRO stage 1: every rank keeps the optimizer's state of its shard only.

Data parallelism repeats everything on every rank: 16 bytes for each parameter, of which 12 are the
optimizer's in mixed precision (8 in fp32). But one step of AdamW over N disjoint shards is one over
them all. So each rank steps its own N-th, and then all tell each other the result:

    backward        gradients, whole, on every rank
    reduce-scatter  rank r gets the sum of shard r             (N-1)/N of the parameters sent
    step            of shard r, with state for shard r only
    all-gather      of the stepped shards                      (N-1)/N of the parameters sent

An all-reduce of the gradients is these two collectives in a row, so nothing is added to what data
parallelism sends. Stage 1 done carelessly keeps the all-reduce and sends 3 where 2 are needed.

Rajbhandari et al., "ZeRO", SC 2020, sections 5.1 and 7.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib.techniques.collectives.torch_compat import reduce_scatter_single

from .flat_shards import FlatShards, by_kind
from .sharded_training import WholeParameters


class Zero1(WholeParameters):
    """Trains `model` on the ranks of `group`, with the optimizer's state sharded over them.

    zero = Zero1(model, lambda groups: torch.optim.AdamW(groups, lr=1e-3))
    for each batch: zero.zero_grad(); loss(model, part of this rank).backward(); zero.step()
    """

    def _shard(self) -> list[torch.Tensor]:
        shards = self._flatten(by_kind(self.trainable))
        self.gradients = [flat.zeros() for flat in self.flats]
        self.gradient_of: dict[nn.Parameter, torch.Tensor] = {}
        for flat, gradient in zip(self.flats, self.gradients, strict=True):
            self.gradient_of |= zip(flat.parameters, flat.views(gradient), strict=True)
        return shards

    def _watch(self) -> None:
        for parameter in self.trainable:
            parameter.register_post_accumulate_grad_hook(self._keep)

    def zero_grad(self) -> None:
        for parameter in self.trainable:
            parameter.grad = None
        self.sharded.forget_gradients()

    @torch.no_grad()
    def _keep(self, parameter: nn.Parameter) -> None:
        """Move a gradient that backward has finished to its part of the flat buffer."""
        view, gradient = self.gradient_of[parameter], parameter.grad
        if gradient is not None and gradient is not view:
            parameter.grad = view.copy_(gradient)

    def reduce_gradients(self) -> None:
        """Give each piece of this rank the average gradient; `step` and clipping call it."""
        if self.sharded.ready:
            return
        here = {p for p in self.trainable if p.grad is not None}
        for parameter in self.trainable:
            if parameter not in here:
                self.gradient_of[parameter].zero_()
        shards = (self._reduce(*pair) for pair in zip(self.flats, self.gradients, strict=True))
        self.sharded.set_gradients(shards, here)

    def _reduce(self, flat: FlatShards, gradient: torch.Tensor) -> torch.Tensor:
        """(padded,) on each rank -> the average of this rank's shard, (shard_numel,)."""
        shard = gradient.new_empty(flat.shard_numel)
        with record_function("reduce-scatter gradients"):
            reduce_scatter_single(shard, gradient, group=self.group)
        return shard.div_(flat.ranks)


class CarelessZero1(Zero1):
    """Stage 1 as an afterthought to data parallelism, and as DeepSpeed first had it (2020).

    The same results for half as much again: all ranks get the sum of all gradients, and most of it
    is thrown away.
    """

    def _reduce(self, flat: FlatShards, gradient: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(gradient, group=self.group)
        return flat.own(gradient.div_(flat.ranks)).clone()
