"""Attention over t ranks: each has some heads, and one all-reduce goes each way.

    x whole --f--> query, key, value of H/t heads --> attention --> out, by rows --g--> y whole

Heads do not look at each other, so a rank needs no other rank until the output projection, whose
rows are cut where the heads end.

Grouped-query attention has K < H heads for keys and values, each used by H/K query heads. With
K >= t they are split as well. With K < t, t/K ranks hold the same key/value head, each for its own
query heads; each computes a summand of its gradient, and these are added up around a ring of the
ranks that share it:

    H = 8, K = 2, t = 4     rank      0      1      2      3
                            queries   0 1    2 3    4 5    6 7
                            keys      0      0      1      1

Shoeybi et al. 2019 (arXiv 1909.08053), figure 3b; Ainslie et al., "GQA", arXiv 2305.13245 (2023).
"""

from collections.abc import Callable
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from torch.profiler import record_function

from course_lib.techniques.collectives.members import Members
from course_lib.techniques.collectives.ring import ring_all_reduce_members

from .axis import Share, TensorAxis
from .linear import (
    ColumnParallelLinear,
    RowParallelLinear,
    column_linears,
)
from .random_streams import separate_stream

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class ParallelAttention(nn.Module):
    """Causal self-attention, (B, T, C) to (B, T, C), with H/t heads of size D = C/H on each rank.

    kv_heads: heads K of keys and values, all H unless given.
    dropout: of the attention weights, other elements on every rank.
    sequence_parallel: (B, T/t, C) to (B, T/t, C).

    Where some tokens of the sequence are on other ranks (context parallelism), set `attend`: it
    takes this rank's q, k and v, and gives what they are mixed to, like q.
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        group: dist.ProcessGroup | None = None,
        *,
        kv_heads: int | None = None,
        dropout: float = 0.0,
        sequence_parallel: bool = False,
    ) -> None:
        super().__init__()
        axis = self.axis = TensorAxis.of(group)
        kv_heads = kv_heads or heads
        _require_divisible(hidden, heads, kv_heads, axis.size)
        self.head_size, self.dropout = hidden // heads, dropout
        self.attend: Attend | None = None
        self.sharers = axis.size // kv_heads if kv_heads < axis.size else 1
        kv_width, parts = kv_heads * self.head_size, axis.size // self.sharers
        kv_share = Share(0, kv_width, parts, axis.rank // self.sharers)

        def column(width: int, share: Share | None = None) -> ColumnParallelLinear:
            return ColumnParallelLinear(
                hidden, width, group, sequence_parallel=sequence_parallel, share=share
            )

        self.query = column(hidden)
        self.key = column(kv_width, kv_share)
        self.value = column(kv_width, kv_share)
        self.out = RowParallelLinear(hidden, hidden, group, sequence_parallel=sequence_parallel)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            y.unflatten(-1, (-1, self.head_size)).transpose(1, 2)  # (B, H/t or K/t, T, D)
            for y in self._project(x)
        )
        mixed = (self.attend or self._attend_here)(q, k, v)  # (B, H/t, T, D)
        return self.out(mixed.transpose(1, 2).flatten(-2))  # (B, T, C/t) -> (B, T, C)

    def _attend_here(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        dropout = self.dropout if self.training else 0.0
        with separate_stream(self.axis.rank) if dropout else nullcontext():
            return F.scaled_dot_product_attention(
                q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=q.shape[1] != k.shape[1]
            )

    def _project(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        layers = [self.query, self.key, self.value]
        if self.sharers == 1:
            return column_linears(x, layers)
        first = self.axis.rank // self.sharers * self.sharers
        ranks = range(first, first + self.sharers)
        members = Members(ranks, self.axis.rank - first, self.axis.group)
        key_weight, key_bias, value_weight, value_bias = CopyToSharers.apply(
            members, self.key.weight, self.key.bias, self.value.weight, self.value.bias
        )
        weights = [self.query.weight, key_weight, value_weight]
        biases = [self.query.bias, key_bias, value_bias]
        return column_linears(x, layers, weights, biases)


class CopyToSharers(torch.autograd.Function):
    """f for parameters that a few ranks have in common: apply(members, *parameters).

    Backward adds up the gradients that these ranks have computed, each for its own query heads.
    """

    @staticmethod
    def forward(ctx, members: Members, *parameters: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.members = members
        return tuple(parameter.view_as(parameter) for parameter in parameters)

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: torch.Tensor):
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        with record_function("shared key/value heads: all-reduce"):
            ring_all_reduce_members(flat, ctx.members)
        sums = flat.split([gradient.numel() for gradient in gradients])
        return None, *(s.view_as(g) for s, g in zip(sums, gradients, strict=True))


def _require_divisible(hidden: int, heads: int, kv_heads: int, ranks: int) -> None:
    if hidden % heads:
        raise ValueError(f"a hidden size of {hidden} cannot be cut into {heads} equal heads")
    if heads % ranks:
        few = "fewer than" if heads < ranks else "not a multiple of"
        raise ValueError(f"{heads} attention heads are {few} the {ranks} ranks to hold them")
    if heads % kv_heads:
        raise ValueError(f"{heads} query heads cannot share {kv_heads} key/value heads equally")
    if kv_heads % ranks and ranks % kv_heads:
        raise ValueError(
            f"{kv_heads} key/value heads and {ranks} ranks: one must be a multiple of the other"
        )
