"""Known answers to parallel_mlp."""

import torch.distributed as dist
import torch.nn.functional as F

from course_lib.checks.known_answers import right, wrong

from ._common import Sum, f, g
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
