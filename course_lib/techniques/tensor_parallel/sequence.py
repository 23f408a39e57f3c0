"""Sequence parallelism: between the layers, each rank keeps T/t tokens instead of all T.

Norms, dropout and residual sums treat every token alike, so there is no need for every rank to have
them all. g is an all-reduce, and an all-reduce is a reduce-scatter followed by an all-gather. Put
what lies between two layers in between the two halves:

    tensor parallel     ... rows --all-reduce--> norm, dropout (all T) --> columns ...
    sequence parallel   ... rows --reduce-scatter--> norm, dropout (T/t) --all-gather--> columns ...

The same bytes travel, and 1/t of the activations of that region stay for backward:

    operator                                forward             backward
    ScatterToSequenceParallel               keep own tokens     all-gather
    GatherFromSequenceParallel              all-gather          reduce-scatter
    ReduceScatterToSequenceParallel         reduce-scatter      all-gather

A parameter that is whole on every rank (a norm's gain, the bias after a row split) now sees only
the tokens of its rank, so its gradient is a summand: `sum_replicated_gradients` adds them up, in
one message, once before the optimizer's step.

Korthikanti et al., "Reducing activation recomputation in large transformer models", arXiv
2205.05198 (2022), section 4.2.2; in its figures the second operator is g, the third g-bar.

Tokens are dimension 1: (B, T, C).
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.autograd.function import once_differentiable
from torch.profiler import record_function

from course_lib.techniques.collectives.fusion import fused_all_reduce
from course_lib.techniques.collectives.torch_compat import all_gather_single, reduce_scatter_single

from .axis import Share, TensorAxis, even_share
from .state import shares_of

_TOKENS = 1  # the dimension


class ScatterToSequenceParallel(torch.autograd.Function):
    """(B, T, C), the same on every rank, to the rank's own (B, T/t, C)."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, axis: TensorAxis) -> torch.Tensor:
        ctx.axis = axis
        return token_share(x.shape[_TOKENS], axis).of(x).contiguous()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        return start_gather(gradient, ctx.axis)(), None


class GatherFromSequenceParallel(torch.autograd.Function):
    """(B, T/t, C) to (B, T, C) on every rank, where each goes on in its own direction."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, axis: TensorAxis) -> torch.Tensor:
        ctx.axis = axis
        with record_function("g: all-gather"):
            return start_gather(x, axis)()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        with record_function("g backward: reduce-scatter"):
            return start_reduce_scatter(gradient, ctx.axis)(), None


class ReduceScatterToSequenceParallel(torch.autograd.Function):
    """(B, T, C), a summand on every rank, to the rank's own tokens of the sum, (B, T/t, C)."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, axis: TensorAxis) -> torch.Tensor:
        ctx.axis = axis
        token_share(x.shape[_TOKENS], axis)
        with record_function("g-bar: reduce-scatter"):
            return start_reduce_scatter(x, axis)()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        with record_function("g-bar backward: all-gather"):
            return start_gather(gradient, ctx.axis)(), None


def token_share(tokens: int, axis: TensorAxis) -> Share:
    """The tokens of this rank. Raises `ValueError` where the ranks do not divide them."""
    return even_share(axis, _TOKENS, tokens, "tokens")


def start_gather(x: torch.Tensor, axis: TensorAxis) -> Callable[[], torch.Tensor]:
    """Begin to gather (B, T/t, C) from all ranks; the function returned waits for (B, T, C)."""
    if axis.size == 1:
        return x.clone
    batch, tokens, *rest = x.shape
    parts = x.new_empty(axis.size * batch, tokens, *rest)
    work = all_gather_single(parts, x.contiguous(), group=axis.group, async_op=True)

    def finish() -> torch.Tensor:
        work.wait()
        by_rank = parts.unflatten(0, (axis.size, batch))  # (t, B, T/t, C)
        return by_rank.transpose(0, 1).flatten(1, 2)

    return finish


def start_reduce_scatter(x: torch.Tensor, axis: TensorAxis) -> Callable[[], torch.Tensor]:
    """Begin to sum (B, T, C) over all ranks; the function returned waits for (B, T/t, C)."""
    if axis.size == 1:
        return x.clone
    by_rank = x.unflatten(_TOKENS, (axis.size, -1)).transpose(0, 1)  # (t, B, T/t, C)
    own = x.new_empty(by_rank.shape[1:])
    parts = by_rank.flatten(0, 1).contiguous()
    work = reduce_scatter_single(own, parts, group=axis.group, async_op=True)

    def finish() -> torch.Tensor:
        work.wait()
        return own

    return finish


def sum_replicated_gradients(module: nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Complete the gradients of the parameters that every rank has whole, in place.

    For sequence-parallel modules only, after backward and once before the optimizer's step: they
    hold the tokens of one rank. Without sequence parallelism these gradients are complete already.
    """
    shares = shares_of(module)
    gradients = [
        parameter.grad
        for name, parameter in module.named_parameters()
        if name not in shares and parameter.grad is not None
    ]
    with record_function("sequence parallel: gradients of whole parameters"), torch.no_grad():
        fused_all_reduce(gradients, group=group)
