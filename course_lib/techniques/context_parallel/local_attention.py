"""Attention of this rank's queries to the keys of one rank, and its backward pass.

Keys come as (B, K, T_s, D), where K divides H. H/K query heads in a row use one head of keys and
values (grouped-query attention, arXiv 2305.13245); they take turns here, so keys are never written
out H/K times.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch

from .attention import Setting
from .attention_kernels import attend, attend_backward
from .masks import Block
from .merge import merge


def add_keys(
    out: torch.Tensor,
    lse: torch.Tensor,
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    source: int,
    setting: Setting,
) -> None:
    """Take the keys of rank `source` into what `q` has so far: `out` and `lse`, in place."""
    for block in setting.sight.blocks(source):
        k, v = keys[:, :, block.keys], values[:, :, block.keys]
        for out_part, lse_part, queries in _by_group(k, block.queries, out, lse, q):
            merge(out_part, lse_part, *attend(queries, k, v, block.mask, setting.scale))


class Summand(NamedTuple):
    """What some queries contribute to the gradients of some of the keys of one rank."""

    keys: slice
    dk: torch.Tensor
    dv: torch.Tensor


def add_up(sums: torch.Tensor, found: Iterable[Summand]) -> None:
    """Add to the gradients of all keys and values of one rank, (2, B, K, T_s, D), in place."""
    for keys, dk, dv in found:
        sums[0, :, :, keys].add_(dk)
        sums[1, :, :, keys].add_(dv)


def summands(
    dq: torch.Tensor,
    grad_out: torch.Tensor,
    q: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    source: int,
    setting: Setting,
) -> Iterator[Summand]:
    """What `q` contributes to the gradients of rank `source`'s keys; and, to `dq`, they to its own.

    out, lse: of the softmax over the keys of all ranks.
    """
    for block in setting.sight.blocks(source):
        k, v = keys[:, :, block.keys], values[:, :, block.keys]
        groups = _by_group(k, block.queries, dq, grad_out, q, out, lse)
        yield Summand(block.keys, *_over_groups(groups, k, v, block, setting.scale))


def _over_groups(
    groups: Iterator[tuple[torch.Tensor, ...]],
    k: torch.Tensor,
    v: torch.Tensor,
    block: Block,
    scale: float,
) -> list[torch.Tensor]:
    """dk and dv of a block, summed over the query heads that share them."""
    sums: list[torch.Tensor] = []
    for dq, dout, q, out, lse in groups:
        more, *parts = attend_backward(dout, q, out, lse, k, v, block.mask, scale)
        dq += more
        if sums:
            torch._foreach_add_(sums, parts)
        else:
            sums = [part.to(dq.dtype) for part in parts]
        del more, parts  # before the next are made
    return sums


def _by_group(
    k: torch.Tensor, queries: slice, *tensors: torch.Tensor
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Views of the tensors (B, H, T, ...) at these queries, with K heads (B, K, Tq, ...) each.

    The first query head of every head of keys, then the second, and so on.
    """
    parts = (x[:, :, queries].unflatten(1, (k.shape[1], -1)).unbind(2) for x in tensors)
    return zip(*parts, strict=True)
