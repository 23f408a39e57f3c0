"""Data parallelism in ten lines: what it is, before it is made fast.

    model = NaiveDataParallel(model)           # all ranks start equal
    loss(model(my_inputs), my_targets).backward()
    model.average_gradients()                  # then the optimizer takes the same step everywhere

The mean over the ranks of their mean gradients is the gradient of the mean over all samples, where
all parts are equally large. Nothing travels while backward computes, and each parameter pays the
latency of a message: the two things that `distributed_data_parallel.py` mends.
"""

from typing import Any

import torch.distributed as dist
from torch import nn

from course_lib.techniques.collectives.broadcast import broadcast_state


class NaiveDataParallel(nn.Module):
    """A replica of `module`, each of whose parameters gets a gradient on all ranks or on none."""

    def __init__(self, module: nn.Module, group: dist.ProcessGroup | None = None):
        super().__init__()
        self.module, self.group = module, group
        broadcast_state(module, group)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def average_gradients(self) -> None:
        """One all-reduce per parameter, one after the other."""
        for parameter in self.module.parameters():
            if parameter.grad is not None:
                parameter.grad = parameter.grad.contiguous()  # travels as it lies in memory
                dist.all_reduce(parameter.grad, group=self.group)
                parameter.grad /= dist.get_world_size(self.group)
