"""An equal start: every rank takes over the first one's parameters and buffers."""

import torch.distributed as dist
from torch import nn


def broadcast_state(model: nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Give every rank the parameters and buffers of the group's first rank."""
    for tensor in [*model.parameters(), *model.buffers()]:
        # A broadcast writes memory in order, so a transposed weight has to travel as a copy.
        values = tensor.detach().contiguous()
        dist.broadcast(values, group=group, group_src=0)
        tensor.detach().copy_(values)
