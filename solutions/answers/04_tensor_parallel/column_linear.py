"""Known answers to column_linear."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.checks.known_answers import right, wrong

from ._common import mine


@right
def column_linear(x, weight, bias):
    size = len(weight) // dist.get_world_size()
    own = slice(dist.get_rank() * size, (dist.get_rank() + 1) * size)
    return F.linear(x, weight[own], bias[own])


@wrong(says="return only this rank's columns")
def all_columns_everywhere(x, weight, bias):
    return F.linear(x, weight, bias)


@wrong(says="cut the weight before the product")
def cut_after_the_product(x, weight, bias):
    return mine(F.linear(x, weight, bias), -1)


@wrong(says="right but for the bias: it has columns as well")
def no_bias(x, weight, bias):
    return x @ mine(weight).T


@wrong(says="what rank 0 should return")
def always_the_first_columns(x, weight, bias):
    t = dist.get_world_size()
    return F.linear(x, weight.chunk(t)[0], bias.chunk(t)[0])


@wrong(says="doing without it: needs no communication")
def columns_gathered(x, weight, bias):
    own = F.linear(x, mine(weight), mine(bias))
    whole = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(whole, own.detach())
    return torch.cat(whole, -1)


@wrong(says="your function returned nothing")
def columns_not_returned(x, weight, bias):
    F.linear(x, mine(weight), mine(bias))
