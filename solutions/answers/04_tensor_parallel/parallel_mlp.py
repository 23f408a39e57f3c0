"""Known answers to parallel_mlp."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.checks.known_answers import right, wrong

from ._common import Sum, f, g, mine, summed
from .megatron_f import f_by_a_hook, megatron_f
from .megatron_g import g_without_a_class, megatron_g


@right
def parallel_mlp(x, up, up_bias, down, down_bias):
    hidden = F.gelu(F.linear(megatron_f(x), up, up_bias))
    return megatron_g(F.linear(hidden, down)) + down_bias


@right
def mlp_with_hooks(x, up, up_bias, down, down_bias):
    first = dist.get_rank() == 0
    hidden = F.gelu(F.linear(f_by_a_hook(x), up, up_bias))
    if first:
        return g_without_a_class(F.linear(hidden, down)) + down_bias
    return g_without_a_class(hidden @ down.T) + down_bias


@wrong(says="the part that came through this rank's own columns: f is missing")
def mlp_without_f(x, up, up_bias, down, down_bias):
    return g(F.gelu(F.linear(x, up, up_bias)) @ down.T) + down_bias


@wrong(says="this rank's own summand: g is missing")
def mlp_without_g(x, up, up_bias, down, down_bias):
    return F.linear(F.gelu(F.linear(f(x), up, up_bias)), down, down_bias)


@wrong(says="it was added on each of 2 ranks and summed")
def mlp_with_many_biases(x, up, up_bias, down, down_bias):
    return g(F.linear(F.gelu(F.linear(f(x), up, up_bias)), down, down_bias))


@wrong(says="right but for the GeLU")
def mlp_without_gelu(x, up, up_bias, down, down_bias):
    return g(F.linear(f(x), up, up_bias) @ down.T) + down_bias


@wrong(says="the average of the summands")
def mlp_that_averages(x, up, up_bias, down, down_bias):
    hidden = F.gelu(F.linear(f(x), up, up_bias))
    return g(hidden @ down.T) / dist.get_world_size() + down_bias


@wrong(says="exactly t = 2 times the reference")
def mlp_with_sums_both_ways(x, up, up_bias, down, down_bias):
    hidden = F.gelu(F.linear(f(x), up, up_bias))
    return Sum.apply(hidden @ down.T, True, True) + down_bias


@wrong(says="one all-reduce of the output (g)")
def mlp_that_gathers_between(x, up, up_bias, down, down_bias):
    """The hidden layer is put together on every rank, as zeros and the own part."""
    hidden = F.gelu(F.linear(f(x), up, up_bias))
    size, rank, t = len(up), dist.get_rank(), dist.get_world_size()
    whole = g(F.pad(hidden, (rank * size, (t - 1 - rank) * size)))
    return g(whole[..., rank * size : (rank + 1) * size] @ down.T) + down_bias


@right
def mlp_by_einsum(x, up, up_bias, down, down_bias):
    hidden = torch.nn.GELU()(torch.einsum("btc,hc->bth", f(x), up) + up_bias)
    return torch.add(g(torch.einsum("bth,ch->btc", hidden, down)), down_bias)


@right
def mlp_of_flat_tokens(x, up, up_bias, down, down_bias):
    hidden = torch.addmm(up_bias, f(x).reshape(-1, x.shape[-1]), up.t())
    return (g(torch.mm(F.gelu(hidden), down.t())) + down_bias).view(x.shape)


class WholeMLP(torch.autograd.Function):
    """f, both layers and g in one operator."""

    @staticmethod
    def forward(ctx, x, up, up_bias, down):
        ctx.save_for_backward(x, up, up_bias, down)
        return summed(F.gelu(F.linear(x, up, up_bias)) @ down.T)

    @staticmethod
    def backward(ctx, gradient):
        leaves = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        x, up, up_bias, down = leaves
        with torch.enable_grad():
            y = F.gelu(F.linear(x, up, up_bias)) @ down.T
        first, *others = torch.autograd.grad(y, leaves, gradient)
        return summed(first), *others


@right
def mlp_in_one_operator(x, up, up_bias, down, down_bias):
    return WholeMLP.apply(x, up, up_bias, down) + down_bias


@wrong(says="the weights are cut again")
def mlp_cut_twice(x, up, up_bias, down, down_bias):
    hidden = F.gelu(F.linear(f(x), mine(up), mine(up_bias)))
    return g(hidden @ mine(down, 1).T) + down_bias


@wrong(says="what comes out with f and g swapped")
def mlp_with_f_for_g(x, up, up_bias, down, down_bias):
    return f(F.gelu(F.linear(g(x), up, up_bias)) @ down.T) + down_bias


@wrong(says="the GeLU's approximation by tanh")
def mlp_by_tanh(x, up, up_bias, down, down_bias):
    hidden = F.gelu(F.linear(f(x), up, up_bias), approximate="tanh")
    return g(hidden @ down.T) + down_bias


@wrong(says="the residual sum is the caller's")
def mlp_with_its_residual(x, up, up_bias, down, down_bias):
    return x + g(F.gelu(F.linear(f(x), up, up_bias)) @ down.T) + down_bias


@wrong(says="was a part added on every rank before g")
def mlp_with_a_part_of_the_bias(x, up, up_bias, down, down_bias):
    hidden = F.gelu(F.linear(f(x), up, up_bias))
    return g(F.linear(hidden, down, down_bias / dist.get_world_size()))


@wrong(says="Add it everywhere, after g")
def mlp_with_the_bias_on_rank_0(x, up, up_bias, down, down_bias):
    hidden = F.gelu(F.linear(f(x), up, up_bias))
    return g(F.linear(hidden, down, down_bias if dist.get_rank() == 0 else None))
