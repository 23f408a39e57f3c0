"""Clipping by the global norm, when each rank has only a shard of the gradient.

The norm of the whole is no rank's own: ||g||^2 is the sum of the squares of all shards, one number
to all-reduce. A rank that clipped by the norm of its own shard would scale its part by a factor of
its own, and so turn the gradient. What all ranks hold a copy of counts once, not N times.

Pascanu et al., "On the difficulty of training recurrent neural networks", ICML 2013, section 3.2.
"""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist


def global_norm(
    sharded: Sequence[torch.Tensor],
    group: dist.ProcessGroup | None = None,
    replicated: Sequence[torch.Tensor] = (),
    norm_type: float = 2.0,
    device: torch.device | None = None,
) -> torch.Tensor:
    """The norm over the shards on all ranks of `group` and the `replicated` tensors: a scalar.

    sharded: this rank's part, maybe nothing; replicated: what every rank has the same of.
    device: where the number is all-reduced, for ranks that hold no tensor to take it from.
    """
    if norm_type <= 0:
        raise ValueError(f"norm_type = {norm_type}, and a norm needs more than 0")
    if device is None:
        device = next((t.device for t in [*sharded, *replicated]), torch.device("cpu"))
    if math.isinf(norm_type):
        largest = _largest([*sharded, *replicated], device)
        dist.all_reduce(largest, op=dist.ReduceOp.MAX, group=group)
        return largest
    total = _sum_of_powers(sharded, norm_type, device)
    dist.all_reduce(total, group=group)
    return (total + _sum_of_powers(replicated, norm_type, device)) ** (1 / norm_type)


def clip_grad_norm_(
    sharded: Sequence[torch.Tensor],
    max_norm: float,
    group: dist.ProcessGroup | None = None,
    replicated: Sequence[torch.Tensor] = (),
    norm_type: float = 2.0,
    device: torch.device | None = None,
) -> torch.Tensor:
    """Scale gradients in place so that their global norm is at most `max_norm`; returns the norm.

    The arithmetic is that of `torch.nn.utils.clip_grad_norm_` on one device.
    """
    norm = global_norm(sharded, group, replicated, norm_type, device)
    scale = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in [*sharded, *replicated]:
        gradient.mul_(scale.to(gradient.dtype))
    return norm


def _sum_of_powers(
    tensors: Sequence[torch.Tensor], norm_type: float, device: torch.device
) -> torch.Tensor:
    # In float64: a sum of squares leaves the range of half precision at a norm of 256.
    total = torch.zeros((), dtype=torch.float64, device=device)
    for tensor in tensors:
        total += torch.linalg.vector_norm(tensor, norm_type, dtype=torch.float64) ** norm_type
    return total


def _largest(tensors: Sequence[torch.Tensor], device: torch.device) -> torch.Tensor:
    largest = torch.zeros((), dtype=torch.float64, device=device)
    for tensor in tensors:
        if tensor.numel():
            largest = torch.maximum(largest, tensor.detach().abs().max().double())
    return largest
