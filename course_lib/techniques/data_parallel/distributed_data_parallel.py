"""Data parallelism: a replica of the model on every rank, each with its own part of the batch.

    model = DataParallel(model)                # all ranks start equal
    for inputs, targets in my_part:
        optimizer.zero_grad()
        loss(model(inputs), targets).backward()     # leaves the average over ranks in .grad
        optimizer.step()                            # the same step on every rank

The ranks start with equal parameters and take equal steps, so they stay equal. While backward still
computes the gradients of the first layers, those of the last are on their way:

    backward     layer 3 | layer 2 | layer 1 |
    all-reduce            bucket 0 | bucket 1 | bucket 2 |

Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020,
arXiv 2006.15704. The average of the ranks' mean gradients is that of the whole batch if all parts
are equally large; `uneven_inputs.py` has what to do where they are not.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd import Variable
from torch.profiler import record_function

from course_lib.techniques.collectives.broadcast import broadcast_state

from .buckets import (
    BUCKET_BYTES,
    FIRST_BUCKET_BYTES,
    Bucket,
    assign_buckets,
)


class DataParallel(nn.Module):
    """A module whose `backward` leaves gradients averaged over `group` in `.grad`.

    Frozen parameters are left out, and a tied parameter is reduced once, when its gradient is
    complete. A bucket leaves when it and all before it are complete, so that all ranks call their
    collectives in one order without a word.

    find_unused_parameters: allow parameters that take no part in a loss. One that has a gradient on
        some ranks only counts as zero on the others; one that has none anywhere keeps None. To tell
        the two apart costs a further all-reduce of one number per parameter. Without it, such a
        parameter is an error, raised at the end of backward.

    `.grad` is a view of a bucket: keep a copy of it if you need it after the next backward.
    """

    def __init__(
        self,
        module: nn.Module,
        group: dist.ProcessGroup | None = None,
        bucket_bytes: int = BUCKET_BYTES,
        first_bucket_bytes: int = FIRST_BUCKET_BYTES,
        find_unused_parameters: bool = False,
    ):
        super().__init__()
        trainable = {p: name for name, p in module.named_parameters() if p.requires_grad}
        if not trainable:
            raise ValueError("none of the module's parameters is trainable: nothing to average")
        self.module = module
        self.group = group
        self.find_unused_parameters = find_unused_parameters
        self.scale = 1 / dist.get_world_size(group)
        self.names = trainable
        assigned = assign_buckets(list(trainable), bucket_bytes, first_bucket_bytes)
        self.buckets = [Bucket(parameters) for parameters in assigned]
        broadcast_state(module, group)
        self.synchronizing = True
        self._begin()
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(partial(self._ready, bucket))

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward passes inside only add to this rank's own gradients.

        The next one outside sends what has come together. Use it for all but the last of several
        microbatches: the bytes are then those of one.
        """
        before, self.synchronizing = self.synchronizing, False
        try:
            yield
        finally:
            self.synchronizing = before

    def backward_without_data(self) -> None:
        """Take part in the others' backward with zeros, where this rank has no samples left."""
        self._finish(without_data=True)

    # ---------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.in_backward = False
        self.under_way: list[dist.Work] = []
        self.absent: set[nn.Parameter] = set()  # have no gradient on this rank
        for bucket in self.buckets:
            bucket.begin()

    def _ready(self, bucket: Bucket, parameter: nn.Parameter) -> None:
        """Backward has finished the gradient of this parameter of `bucket`."""
        if not self.synchronizing:
            return
        if not self.in_backward:
            self.in_backward = True
            # Called when this backward pass has nothing left to compute.
            Variable._execution_engine.queue_callback(self._finish)
        bucket.missing -= 1
        if not bucket.missing:
            self._send(lambda bucket: not bucket.missing)

    def _send(self, complete: Callable[[Bucket], bool]) -> None:
        """Start the all-reduce of the next buckets in order, while they are complete."""
        for i, bucket in enumerate(self.buckets[len(self.under_way) :], len(self.under_way)):
            if not complete(bucket):
                break
            with record_function(f"all-reduce of bucket {i}"):
                self.absent.update(bucket.fill(self.scale))
                work = dist.all_reduce(bucket.buffer, group=self.group, async_op=True)
            self.under_way.append(work)

    def _finish(self, without_data: bool = False) -> None:
        """Send what backward never reached, then wait for all buckets."""
        self._send(lambda bucket: True)
        used = self._used_somewhere() if self.find_unused_parameters else set(self.names)
        for work in self.under_way:
            work.wait()
        absent = self.absent
        if absent:
            for bucket in self.buckets:
                for parameter, view in zip(bucket.parameters, bucket.views, strict=True):
                    if parameter in absent and parameter in used:
                        parameter.grad = view
        self._begin()
        if absent and not (without_data or self.find_unused_parameters):
            names = ", ".join(name for p, name in self.names.items() if p in absent)
            raise RuntimeError(
                f"no gradient for {names}: parameters that take no part in the loss need "
                "DataParallel(..., find_unused_parameters=True)"
            )

    def _used_somewhere(self) -> set[nn.Parameter]:
        """The parameters that have a gradient on at least one rank of the group."""
        counts = torch.tensor([p not in self.absent for p in self.names], dtype=torch.int32)
        counts = counts.to(self.buckets[0].buffer.device)
        dist.all_reduce(counts, group=self.group)
        return {p for p, count in zip(self.names, counts.tolist(), strict=True) if count}
