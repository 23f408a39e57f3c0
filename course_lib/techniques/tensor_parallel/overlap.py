"""Column-parallel layers whose all-reduce travels while their weight gradients are computed.

The backward of y = x A is two products, dx = dy A^T and dA = x^T dy. Only dx goes to the other
ranks (f), and dA does not wait for it:

    f, then linear      [dx = dy A^T] [dA = x^T dy] [all-reduce dx .....]
    here                [dx = dy A^T] [dA = x^T dy]
                                      [all-reduce dx .....]

`plain_column_linears` is the first line; the result is the same. With sequence parallelism the
all-reduce is a reduce-scatter. Then only the rank's own tokens of x are kept for backward, 1/t of
the memory, and the others are gathered once more, while dx is computed.

Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.2, for the second gather; Megatron-LM's
`LinearWithGradAccumulationAndAsyncCommunication`.
"""

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd.function import once_differentiable
from torch.profiler import record_function

from .axis import TensorAxis
from .f_and_g import CopyToTensorParallel
from .sequence import (
    GatherFromSequenceParallel,
    start_gather,
    start_reduce_scatter,
)


def plain_column_linears(
    axis: TensorAxis,
    sequence_parallel: bool,
    x: torch.Tensor,
    weights: Sequence[torch.Tensor],
    biases: Sequence[torch.Tensor | None],
) -> tuple[torch.Tensor, ...]:
    """One product (..., N/t) for each weight (N/t, K), as f and F.linear make them."""
    f = GatherFromSequenceParallel if sequence_parallel else CopyToTensorParallel
    x = f.apply(x, axis)
    return tuple(F.linear(x, w, b) for w, b in zip(weights, biases, strict=True))


class ColumnLinears(torch.autograd.Function):
    """The same, overlapped: apply(axis, sequence_parallel, x, *weights, *biases)."""

    @staticmethod
    def forward(
        ctx,
        axis: TensorAxis,
        sequence_parallel: bool,
        x: torch.Tensor,
        *parameters: torch.Tensor | None,
    ) -> tuple[torch.Tensor, ...]:
        weights, biases = _halves(parameters)
        ctx.axis, ctx.sequence_parallel = axis, sequence_parallel
        ctx.save_for_backward(x, *weights)
        if sequence_parallel:
            with record_function("g: all-gather"):
                x = start_gather(x, axis)()
        return tuple(F.linear(x, w, b) for w, b in zip(weights, biases, strict=True))

    @staticmethod
    @once_differentiable
    def backward(ctx, *gradients: torch.Tensor):
        x, *weights = ctx.saved_tensors
        _, _, x_needed, *needed = ctx.needs_input_grad
        weight_needed, bias_needed = _halves(needed)
        rows = [dy.flatten(0, -2) for dy in gradients]  # (B T, N/t)

        whole_x = lambda: x  # noqa: E731
        if ctx.sequence_parallel and any(weight_needed):
            whole_x = start_gather(x, ctx.axis)
        finish_dx: Callable[[], torch.Tensor | None] = lambda: None  # noqa: E731
        if x_needed:
            dx = _input_gradient(rows, weights).view(*gradients[0].shape[:-1], x.shape[-1])
            finish_dx = _start_reduction(dx, ctx)
        columns = whole_x().flatten(0, -2)  # (B T, K)
        dw = [dy.T @ columns if n else None for dy, n in zip(rows, weight_needed, strict=True)]
        db = [dy.sum(0) if n else None for dy, n in zip(rows, bias_needed, strict=True)]
        return None, None, finish_dx(), *dw, *db


def _input_gradient(rows: list[torch.Tensor], weights: list[torch.Tensor]) -> torch.Tensor:
    """The sum of dy W over all layers, (B T, K)."""
    dx = rows[0] @ weights[0]
    for dy, weight in zip(rows[1:], weights[1:], strict=True):
        dx.addmm_(dy, weight)
    return dx


def _start_reduction(dx: torch.Tensor, ctx) -> Callable[[], torch.Tensor]:
    """Begin to add up `dx` over the ranks. It was made here, so it can be reduced in place."""
    if ctx.sequence_parallel:
        with record_function("g backward: reduce-scatter"):
            return start_reduce_scatter(dx, ctx.axis)
    if ctx.axis.size == 1:
        return lambda: dx
    with record_function("f backward: all-reduce"):
        work = dist.all_reduce(dx, group=ctx.axis.group, async_op=True)

    def finish() -> torch.Tensor:
        work.wait()
        return dx

    return finish


def _halves(items: Sequence) -> tuple[Sequence, Sequence]:
    return items[: len(items) // 2], items[len(items) // 2 :]
