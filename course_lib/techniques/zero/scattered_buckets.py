"""Buckets of gradients that are reduce-scattered while backward goes on."""

import torch
from torch.profiler import record_function

from course_lib.techniques.collectives.torch_compat import reduce_scatter_single

from .flat_shards import FlatShards


class ScatteredBucket:
    """The gradients of neighbouring parameters, on their way to a shard for each rank.

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
        self.sent = self.flat.zeros()  # (padded,)
        for parameter, view in zip(self.flat.parameters, self.flat.views(self.sent), strict=True):
            if parameter.grad is not None:
                view.copy_(parameter.grad)
                parameter.grad = None
        self.arriving = self.sent.new_empty(self.flat.shard_numel)  # (padded,) -> (shard_numel,)
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
