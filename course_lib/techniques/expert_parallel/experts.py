"""The experts of one rank, computed together: rows come expert by expert.

    rows (R, C)   | expert 4: 3 rows | expert 5: none | expert 6: 5 rows | expert 7: 1 row |

Each is an MLP of two matrices, and all have theirs in one tensor: `up` (E/n, F, C) and `down`
(E/n, C, F). A run of rows meets one matrix, whatever its length, so nothing is padded; MegaBlocks
(Gale et al., arXiv 2211.15841, section 4) and grouped matrix products of GPU libraries do the same
in one kernel. An expert that has no rows costs nothing and gets a gradient of zeros.

With a tensor axis of t ranks, each expert is cut as an MLP is (tensor_parallel.mlp): `up` by
columns, `down` by rows, (E/n, F/t, C) and (E/n, C, F/t). What comes out is then a summand.

Shapes: R rows that came to this rank, C hidden size, F inner width, E experts, n ranks, t of the
tensor axis.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable

from course_lib.techniques.tensor_parallel.axis import Share, TensorAxis, even_share
from course_lib.techniques.tensor_parallel.random_streams import separate_stream


class Experts(nn.Module):
    """This rank's experts, E/n of them: rows (R, C) to (R, C), or to a summand of that.

    inner: width F inside, four times C unless given.
    group: the ranks that the experts are spread over. tensor_group: those that share each expert,
        if there are any. Raises `ValueError` where one does not divide.

    expert_shares: which experts these are; shares: which part of them, along the tensor axis.
    """

    def __init__(
        self,
        experts: int,
        hidden: int,
        inner: int | None = None,
        group: dist.ProcessGroup | None = None,
        tensor_group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        inner = inner or 4 * hidden
        here = expert_share(experts, TensorAxis.of(group))
        axis = tensor_axis(tensor_group)
        columns = even_share(axis, 1, inner, "columns of an expert")
        self.expert_shares = {"up": here, "down": here}
        self.shares = {"up": columns, "down": Share(2, inner, axis.size, axis.rank)}
        self.up = nn.Parameter(torch.empty(here.size, columns.size, hidden))
        self.down = nn.Parameter(torch.empty(here.size, hidden, columns.size))
        with separate_stream(here.index * axis.size + axis.rank):
            nn.init.normal_(self.up, std=0.02)
            nn.init.normal_(self.down, std=0.02)

    def forward(self, rows: torch.Tensor, per_expert: Sequence[int]) -> torch.Tensor:
        """per_expert: how many of `rows` are of each expert of this rank, R in all."""
        inner = F.gelu(GroupedLinear.apply(rows, self.up, per_expert))  # (R, F)
        return GroupedLinear.apply(inner, self.down, per_expert)


class GroupedLinear(torch.autograd.Function):
    """Runs of rows (R, K), each times a matrix of its own, of weights (runs, N, K): (R, N).

    apply(x, weights, sizes), with the length of each run. In autograd's own way every slice of the
    weights would have a gradient as large as all of them, zero but for one matrix.
    """

    @staticmethod
    def forward(ctx, x: torch.Tensor, weights: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        if len(sizes) != len(weights) or sum(sizes) != len(x):
            raise ValueError(
                f"{len(x)} rows for {len(weights)} experts, and sizes of {sum(sizes)} rows for "
                f"{len(sizes)}"
            )
        ctx.save_for_backward(x, weights)
        ctx.sizes = list(sizes)
        y = x.new_empty(len(x), weights.shape[1])
        for rows, weight, out in zip(x.split(ctx.sizes), weights, y.split(ctx.sizes), strict=True):
            torch.mm(rows, weight.T, out=out)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        x, weights = ctx.saved_tensors
        of_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        of_weights = torch.empty_like(weights) if ctx.needs_input_grad[1] else None
        start = 0
        for expert, size in enumerate(ctx.sizes):
            run = slice(start, start + size)
            start += size
            if of_x is not None:
                torch.mm(gradient[run], weights[expert], out=of_x[run])
            if of_weights is not None:
                torch.mm(gradient[run].T, x[run], out=of_weights[expert])
        return of_x, of_weights, None


def expert_share(experts: int, axis: TensorAxis) -> Share:
    """Which of the experts are this rank's: as many as every other's."""
    if experts % axis.size:
        few = "fewer than" if experts < axis.size else "not a multiple of"
        raise ValueError(f"{experts} experts are {few} the {axis.size} ranks to hold them")
    return Share(0, experts, axis.size, axis.rank)


def tensor_axis(group: dist.ProcessGroup | None) -> TensorAxis:
    """The ranks of a tensor axis; None: this rank has no other to share an expert with."""
    return TensorAxis(None, 1, 0) if group is None else TensorAxis.of(group)
