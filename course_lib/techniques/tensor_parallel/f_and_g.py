"""f and g: where the tensors of tensor parallelism go from "whole on every rank" to "a part on
each" and back.

Autograd ends at the border of a process, and `dist.all_reduce` is not part of the graph. So each
crossing is an operator that says itself what happens on the way back:

    operator                              forward                     backward
    f   CopyToTensorParallel              nothing                     all-reduce
    g   ReduceFromTensorParallel          all-reduce                  nothing
        GatherFromTensorParallel          all-gather (last dim)       keep the own part
        ScatterToTensorParallel           keep the own part           all-gather (last dim)

f and g are conjugate: each one's backward is the other's forward. A pair of them around a part of
the network makes it look, from outside, like the part in one process:

    x whole --f--> x whole --columns--> h part --rows--> y summand --g--> y whole

All are out of place. A gradient that arrives in backward may belong to others as well: in
y = x + layer(x) both summands are handed the same tensor. Reduced in place, it would be summed for
the residual branch too.

Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using model
parallelism", arXiv 1909.08053 (2019), section 3, figures 3 and 4; the names are those of its code.
"""

import torch
from torch.autograd.function import once_differentiable
from torch.profiler import record_function

from .axis import (
    Share,
    TensorAxis,
    even_share,
    gather_parts,
)


class CopyToTensorParallel(torch.autograd.Function):
    """f: every rank goes on with the whole tensor, each in its own direction.

    So each computes only a part of the tensor's gradient, and backward adds the parts up.
    """

    @staticmethod
    def forward(ctx, x: torch.Tensor, axis: TensorAxis) -> torch.Tensor:
        ctx.axis = axis
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        with record_function("f backward: all-reduce"):
            return _reduced(gradient, ctx.axis), None


class ReduceFromTensorParallel(torch.autograd.Function):
    """g: every rank has a summand; all go on with the sum.

    The sum's gradient is the gradient of each summand: backward has nothing to do.
    """

    @staticmethod
    def forward(ctx, x: torch.Tensor, axis: TensorAxis) -> torch.Tensor:
        with record_function("g: all-reduce"):
            return _reduced(x, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        return gradient, None


class GatherFromTensorParallel(torch.autograd.Function):
    """(..., C/t) to (..., C): the parts one beside the other, on every rank.

    All ranks must do the same with the whole tensor, since backward takes the own part of a
    gradient that is then the same everywhere.
    """

    @staticmethod
    def forward(ctx, x: torch.Tensor, axis: TensorAxis) -> torch.Tensor:
        ctx.axis = axis
        return _gathered(x, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        return _own_part(gradient, ctx.axis), None


class ScatterToTensorParallel(torch.autograd.Function):
    """(..., C) to (..., C/t): each rank goes on with its own part."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, axis: TensorAxis) -> torch.Tensor:
        ctx.axis = axis
        return _own_part(x, axis)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        return _gathered(gradient, ctx.axis), None


def _reduced(x: torch.Tensor, axis: TensorAxis) -> torch.Tensor:
    return axis.all_reduce(x.clone(memory_format=torch.contiguous_format))


def _gathered(x: torch.Tensor, axis: TensorAxis) -> torch.Tensor:
    return gather_parts(x, Share(-1, x.shape[-1] * axis.size, axis.size, axis.rank), axis)


def _own_part(x: torch.Tensor, axis: TensorAxis) -> torch.Tensor:
    return even_share(axis, -1, x.shape[-1], "elements in the last dimension").of(x).contiguous()
