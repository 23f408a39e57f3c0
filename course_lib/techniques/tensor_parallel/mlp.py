"""The MLP over t ranks: one all-reduce forward, one backward.

    x whole --f--> up, by columns --> h/t --GeLU--> h/t --> down, by rows --g--> y whole

GeLU is not linear, so GeLU(a + b) is not GeLU(a) + GeLU(b): cut by rows, the first layer would need
its sum before the GeLU. Cut by columns, each rank has some elements complete, applies the GeLU to
them, and they are just the part of the input that its rows of the second layer want.

Shoeybi et al. 2019 (arXiv 1909.08053), figure 3a.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from .linear import ColumnParallelLinear, RowParallelLinear


class ParallelMLP(nn.Module):
    """(B, T, C) to (B, T, C), `inner` wide inside (four times C unless given).

    sequence_parallel: (B, T/t, C) to (B, T/t, C).
    """

    def __init__(
        self,
        hidden: int,
        group: dist.ProcessGroup | None = None,
        *,
        inner: int | None = None,
        sequence_parallel: bool = False,
    ) -> None:
        super().__init__()
        inner = inner or 4 * hidden
        self.up = ColumnParallelLinear(hidden, inner, group, sequence_parallel=sequence_parallel)
        self.down = RowParallelLinear(inner, hidden, group, sequence_parallel=sequence_parallel)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))  # (B, T, C) -> (B, T, 4C/t) -> (B, T, C)
