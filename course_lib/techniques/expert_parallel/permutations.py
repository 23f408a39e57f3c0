"""Rows in another order, and back: a permutation is undone by its inverse.

    x        | a | b | c | d |       order   2 0 3 1       x[order]    | c | a | d | b |
    inverse of the order: 1 3 0 2    x[order][inverse]    | a | b | c | d |

Backward wants the gradient of each row where the row was: the gradients, in the inverse order. Told
only the order, torch would add each gradient to zeros: it does not know that no two rows are equal.

Some rows are left out (dropped), and some places are filled up (padding): both are named by the
number after the last row, which stands for zeros.
"""

import torch
from torch.autograd.function import once_differentiable


class Spread(torch.autograd.Function):
    """x (T, C) to its rows (S, C), one for each choice; backward adds the k of a token up."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, slots: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(rows)
        return _rows_of(x, slots // rows.shape[1])

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        (rows,) = ctx.saved_tensors
        return _rows_of(gradient, rows.flatten()).unflatten(0, tuple(rows.shape)).sum(1), None, None


class Permute(torch.autograd.Function):
    """apply(x, order, inverse): the rows `order` of x (N, C), where N stands for zeros."""

    @staticmethod
    def forward(ctx, x: torch.Tensor, order: torch.Tensor, inverse: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(inverse)
        return _rows_of(x, order)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        (inverse,) = ctx.saved_tensors
        return _rows_of(gradient, inverse), None, None


def _rows_of(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """The rows of x (N, C) that `index` names, where N stands for zeros."""
    missing = index == len(x)
    if not missing.any():
        return x.index_select(0, index)
    return torch.cat([x, x.new_zeros(1, *x.shape[1:])]).index_select(0, index)


def inverse_of(order: torch.Tensor, size: int) -> torch.Tensor:
    """Where each of 0 ... size-1 is in `order`; len(order) for those that are not in it."""
    inverse = torch.full((size + 1,), len(order), device=order.device)
    inverse[order] = torch.arange(len(order), device=order.device)
    return inverse[:size]
