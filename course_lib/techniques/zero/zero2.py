"""ZeRO stage 2: gradients are sharded too, and the whole ones never exist at the same time.

Stage 1 keeps all gradients until the step. But rank r only ever uses shard r of their sum, so
backward can send them off as it makes them:

    backward    bucket 0 complete   bucket 1 complete   ...
    network            reduce-scatter 0    reduce-scatter 1
    memory      bucket 0 | shard of 0, bucket 1 | shards of 0 and 1, bucket 2 | ...

A bucket is a flat buffer of neighbouring parameters, in about the order in which backward finishes
them. One is filled while the one before it travels, so a rank holds two buckets and an N-th of
the rest. What is sent is what stage 1 sends, in smaller portions and earlier.

Rajbhandari et al., "ZeRO", SC 2020, sections 5.2 and 7.2.1.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib.techniques.collectives.broadcast import broadcast_state
from course_lib.techniques.collectives.fusion import pack
from course_lib.techniques.collectives.torch_compat import all_gather_single, reduce_scatter_single

from .flat_shards import FlatShards
from .sharded_optimizer import MakeOptimizer, ShardedOptimizer, ShardedTraining

BUCKET_BYTES = 4 * 2**20


class Bucket:
    """The gradients of neighbouring parameters on their way out.

    missing: parameters whose gradient backward has not finished.
    shard: this rank's shard of the average over the ranks, (shard_numel,), summed over backward
        passes; None if there was none yet.
    """

    def __init__(self, flat: FlatShards) -> None:
        self.flat = flat
        self.missing = len(flat.parameters)
        self.shard: torch.Tensor | None = None

    def send(self) -> None:
        """Start the reduce-scatter. Parameters without a gradient count as zero."""
        self.sent = self.flat.zeros()
        for parameter, view in zip(self.flat.parameters, self.flat.views(self.sent), strict=True):
            if parameter.grad is not None:
                view.copy_(parameter.grad)
                parameter.grad = None
        self.arriving = self.sent.new_empty(self.flat.shard_numel)
        with record_function("reduce-scatter gradients"):
            self.work = reduce_scatter_single(
                self.arriving, self.sent, group=self.flat.group, async_op=True
            )
        self.missing = len(self.flat.parameters)

    def arrive(self) -> None:
        """Wait for what was sent, and free it."""
        self.work.wait()
        self.arriving.div_(self.flat.ranks)
        self.shard = self.arriving if self.shard is None else self.shard + self.arriving
        del self.work, self.sent, self.arriving


class Zero2(ShardedTraining):
    """As `Zero1`, with gradients sharded over the ranks during backward.

    Several backward passes before a step add up. After one, every `.grad` of the model is None.
    All ranks run equally many backward passes.

    bucket_bytes: size of a bucket; one parameter that is larger has a bucket of its own.
    """

    def __init__(
        self,
        model: nn.Module,
        make_optimizer: MakeOptimizer,
        group: dist.ProcessGroup | None = None,
        *,
        param_groups: Sequence[Mapping[str, Any]] | None = None,
        master_dtype: torch.dtype | None = None,
        bucket_bytes: int = BUCKET_BYTES,
    ) -> None:
        self.model, self.group = model, group
        self.frozen: list[tuple[FlatShards, torch.Tensor]] = []  # sharded ones: none before stage 3
        broadcast_state(model, group)
        self.trainable = [p for p in model.parameters() if p.requires_grad]  # a tied one once
        runs = pack(reversed(self.trainable), bucket_bytes)
        self.flats = [FlatShards(run, group) for run in runs]
        self.values = [flat.join(flat.parameters) for flat in self.flats]
        for flat, values in zip(self.flats, self.values, strict=True):
            for parameter, view in zip(flat.parameters, flat.views(values), strict=True):
                parameter.data = view
        own = [flat.own(values) for flat, values in zip(self.flats, self.values, strict=True)]
        self.sharded = ShardedOptimizer(
            self.flats, own, make_optimizer, param_groups, master_dtype, group
        )
        self.optimizer = self.sharded.optimizer
        self.buckets = [Bucket(flat) for flat in self.flats]
        for bucket in self.buckets:
            for parameter in bucket.flat.parameters:
                parameter.register_post_accumulate_grad_hook(partial(self._ready, bucket))
        self.sent = 0  # buckets of this backward pass
        self.travelling: Bucket | None = None
        self.in_backward = False
        self.zero_grad()

    def zero_grad(self) -> None:
        for bucket in self.buckets:
            bucket.shard = None
        self.present: set[nn.Parameter] = set()
        self.sharded.forget_gradients()

    @torch.no_grad()
    def _ready(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        """Backward has finished this parameter's gradient."""
        if not self.in_backward:
            self.in_backward = True
            # Runs when this backward pass is over, as for DistributedDataParallel's buckets.
            torch.autograd.Variable._execution_engine.queue_callback(self._finish)
        self.present.add(parameter)
        bucket.missing -= 1
        # All ranks send in one order, whatever becomes ready first.
        while self.sent < len(self.buckets) and not self.buckets[self.sent].missing:
            self._send()

    @torch.no_grad()
    def _finish(self) -> None:
        """Send the buckets that backward did not complete, and wait for the last one."""
        while self.sent < len(self.buckets):
            self._send()
        self._arrive()
        self.sent, self.in_backward = 0, False

    def _send(self) -> None:
        self._arrive()  # so that two buckets at most take up memory
        self.travelling = self.buckets[self.sent]
        self.travelling.send()
        self.sent += 1

    def _arrive(self) -> None:
        if self.travelling is not None:
            self.travelling.arrive()
        self.travelling = None

    def reduce_gradients(self) -> None:
        """Give each piece of this rank its gradient; `step` and clipping call it."""
        if not self.sharded.ready:
            self.sharded.set_gradients([bucket.shard for bucket in self.buckets], self.present)

    def refresh(self) -> None:
        """Fill the parameters with the shards of all ranks."""
        self.sharded.round_to_shards()
        with record_function("all-gather parameters"):
            for flat, values in zip(self.flats, self.values, strict=True):
                all_gather_single(values, flat.own(values), group=self.group)
