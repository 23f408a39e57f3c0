"""An equal start: every rank takes over what the first one has."""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn


def broadcast_state(model: nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Give every rank the parameters and buffers of the group's first rank."""
    broadcast_tensors([*model.parameters(), *model.buffers()], group)


def broadcast_tensors(
    tensors: Iterable[torch.Tensor], group: dist.ProcessGroup | None = None, group_src: int = 0
) -> None:
    """Give every rank the values that group rank `group_src` has in `tensors`, in place."""
    for tensor in tensors:
        # A broadcast writes memory in order, so a transposed weight has to travel as a copy.
        values = tensor.detach().contiguous()
        dist.broadcast(values, group=group, group_src=group_src)
        tensor.detach().copy_(values)
