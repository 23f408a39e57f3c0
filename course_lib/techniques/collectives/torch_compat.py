"""Collectives that torch renamed, under one name for every supported version.

torch 2.13 calls `all_gather_into_tensor` and `reduce_scatter_tensor` deprecated, in favour of
`all_gather_single` and `reduce_scatter_single`, which older versions do not have.
"""

import torch.distributed as dist

if hasattr(dist, "all_gather_single"):
    all_gather_single = dist.all_gather_single
    reduce_scatter_single = dist.reduce_scatter_single
else:
    all_gather_single = dist.all_gather_into_tensor
    reduce_scatter_single = dist.reduce_scatter_tensor

__all__ = ["all_gather_single", "reduce_scatter_single"]
