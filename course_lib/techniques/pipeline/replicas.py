"""Several equal pipelines, each with its own part of the batch: data parallel over pipelines.

Ranks with the same stage form a group. They start with equal parameters, and average gradients when
a step ends, as in Narayanan et al., SC 2021, section 3.3.1.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn


def average_gradients(parameters: Sequence[nn.Parameter], group: dist.ProcessGroup) -> None:
    """Average `.grad` over `group`, by one all-reduce for each dtype."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    for dtype in dict.fromkeys(gradient.dtype for gradient in gradients):
        alike = [gradient for gradient in gradients if gradient.dtype == dtype]
        flat = torch.cat([gradient.flatten() for gradient in alike])  # (elements of all,)
        dist.all_reduce(flat, group=group)
        flat /= dist.get_world_size(group)
        for gradient, part in zip(alike, flat.split([g.numel() for g in alike]), strict=True):
            gradient.copy_(part.view_as(gradient))
