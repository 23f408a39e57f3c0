"""A linear layer over t ranks, by columns or by rows.

For y = x A + b, with A of shape (K, N). (torch keeps A transposed, as `weight` (N, K): a column of
A is a row of `weight`.)

    by columns     A = [A_1 ... A_t]      y_i = x A_i      every rank has all of x, and a part of y
    by rows        A = [A_1; ...; A_t]    y = sum x_i A_i  every rank has a part of x, and a summand

A column split needs no message forward: the parts of y stay where they are, and the layer behind it
takes them as they come. It needs one backward: x went to all ranks, so its gradient is the sum of
what comes back from all (f). A row split needs an all-reduce forward (g) and none backward. Neither
needs both, and neither concatenates anything, unless `gather_output` asks for the whole y.

A 4096 x 4096 matrix over 8 ranks, by columns: 4096 x 512 on each.

Shoeybi et al. 2019 (arXiv 1909.08053), section 3.
"""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from .axis import (
    Share,
    TensorAxis,
    even_share,
    require_size,
)
from .f_and_g import (
    GatherFromTensorParallel,
    ReduceFromTensorParallel,
)
from .overlap import ColumnLinears
from .random_streams import separate_stream
from .sequence import ReduceScatterToSequenceParallel


class ColumnParallelLinear(nn.Module):
    """(..., K) to (..., N/t): this rank's columns of x A + b, or all N with `gather_output`.

    sequence_parallel: x comes as (B, T/t, K), the tokens of this rank; the result has all tokens.
    share: which columns, if not an equal part for each rank.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        group: dist.ProcessGroup | None = None,
        *,
        bias: bool = True,
        gather_output: bool = False,
        sequence_parallel: bool = False,
        share: Share | None = None,
    ) -> None:
        super().__init__()
        self.axis = TensorAxis.of(group)
        self.gather_output, self.sequence_parallel = gather_output, sequence_parallel
        share = share or even_share(self.axis, 0, out_features, "columns")
        self.shares = {"weight": share} | ({"bias": share} if bias else {})
        self.weight = nn.Parameter(torch.empty(share.size, in_features))  # (N/t, K)
        self.bias = nn.Parameter(torch.zeros(share.size)) if bias else None
        with separate_stream(share.index):
            initialise(self.weight, in_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (y,) = column_linears(x, [self])
        return GatherFromTensorParallel.apply(y, self.axis) if self.gather_output else y


class RowParallelLinear(nn.Module):
    """(..., K/t) to (..., N): this rank's rows of A; the sum of all ranks' products, plus b once.

    sequence_parallel: the result is (B, T/t, N), the tokens of this rank.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        group: dist.ProcessGroup | None = None,
        *,
        bias: bool = True,
        sequence_parallel: bool = False,
    ) -> None:
        super().__init__()
        self.axis = TensorAxis.of(group)
        self.sequence_parallel = sequence_parallel
        share = even_share(self.axis, 1, in_features, "rows")
        self.shares = {"weight": share}
        self.weight = nn.Parameter(torch.empty(out_features, share.size))  # (N, K/t)
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None  # (N,) on every rank
        with separate_stream(share.index):
            initialise(self.weight, in_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        require_size(x.shape[-1], self.weight.shape[1], "the last dimension of the input")
        summand = F.linear(x, self.weight)
        g = ReduceScatterToSequenceParallel if self.sequence_parallel else ReduceFromTensorParallel
        y = g.apply(summand, self.axis)
        # Added by every rank before g, the bias would be in the sum t times.
        return y if self.bias is None else y + self.bias


def column_linears(
    x: torch.Tensor,
    layers: Sequence[ColumnParallelLinear],
    weights: Sequence[torch.Tensor] | None = None,
    biases: Sequence[torch.Tensor | None] | None = None,
) -> tuple[torch.Tensor, ...]:
    """Several column-parallel layers on one input, such as query, key and value.

    They share one f, so that the input's gradient is added up once. weights, biases: instead of
    the layers' own, where something is to happen to their gradients.
    """
    for layer in layers:
        require_size(x.shape[-1], layer.weight.shape[1], "the last dimension of the input")
    weights = weights or [layer.weight for layer in layers]
    biases = biases or [layer.bias for layer in layers]
    return ColumnLinears.apply(layers[0].axis, layers[0].sequence_parallel, x, *weights, *biases)


def initialise(weight: torch.Tensor, fan_in: int) -> None:
    """As torch does in nn.Linear, with the bound of the whole matrix and not of the part."""
    bound = 1 / math.sqrt(fan_in)
    nn.init.uniform_(weight, -bound, bound)
