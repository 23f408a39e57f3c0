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

from course_lib.techniques.collectives.fusion import pack
from course_lib.techniques.make_optimizer import MakeOptimizer

from .scattered_buckets import ScatteredBucket
from .sharded_training import WholeParameters

BUCKET_BYTES = 4 * 2**20


class Zero2(WholeParameters):
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
        self.bucket_bytes = bucket_bytes
        super().__init__(
            model, make_optimizer, group, param_groups=param_groups, master_dtype=master_dtype
        )

    def _shard(self) -> list[torch.Tensor]:
        return self._flatten(pack(reversed(self.trainable), self.bucket_bytes))

    def _watch(self) -> None:
        self.buckets = [ScatteredBucket(flat) for flat in self.flats]
        for bucket in self.buckets:
            for parameter in bucket.flat.parameters:
                parameter.register_post_accumulate_grad_hook(partial(self._ready, bucket))
        self.sent = 0  # buckets of this backward pass
        self.travelling: ScatteredBucket | None = None
        self.in_backward = False
        self.zero_grad()

    def zero_grad(self) -> None:
        for bucket in self.buckets:
            bucket.shard = None
        self.present: set[nn.Parameter] = set()
        self.sharded.forget_gradients()

    @torch.no_grad()
    def _ready(self, bucket: ScatteredBucket, parameter: nn.Parameter) -> None:
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
