"""What answers to notebook 08 share."""

import torch
import torch.distributed as dist


def coordinates(rank, sizes):
    found = {}
    for axis in reversed(sizes):
        rank, found[axis] = divmod(rank, sizes[axis])
    return found


def sum_over(value, group):
    total = torch.as_tensor(value, dtype=torch.float64).clone()
    dist.all_reduce(total, group=group)
    return total
