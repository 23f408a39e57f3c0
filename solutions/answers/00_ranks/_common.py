"""What answers to notebook 00 share."""

import torch.distributed as dist


def others():
    return [rank for rank in range(dist.get_world_size()) if rank != dist.get_rank()]
