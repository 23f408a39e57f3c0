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


@right
def by_a_module(x, weight, bias):
    sizes = weight.shape[1], len(mine(weight))
    layer = torch.nn.utils.skip_init(torch.nn.Linear, *sizes, dtype=x.dtype)
    with torch.no_grad():
        layer.weight.copy_(mine(weight))
        layer.bias.copy_(mine(bias))
    return layer(x)


@right
def by_broadcasting_the_own_rows(x, weight, bias):
    return (x.unsqueeze(1) * mine(weight)).sum(-1) + mine(bias)


@right
def by_numpy(x, weight, bias):
    n = len(weight) // dist.get_world_size()
    own = slice(dist.get_rank() * n, (dist.get_rank() + 1) * n)
    return torch.from_numpy(x.numpy() @ weight.numpy()[own].T + bias.numpy()[own])


@right
def vector_by_vector(x, weight, bias):
    return torch.stack([torch.addmv(mine(bias), mine(weight), row) for row in x])


@wrong(says="cut the weight before the product")
def cut_after_a_broadcast_product(x, weight, bias):
    return mine((x[:, None, :] * weight).sum(-1) + bias, 1)


@wrong(says="cut the weight before the product")
def cut_after_products_with_vectors(x, weight, bias):
    return mine(torch.stack([weight @ row + bias for row in x]), 1)


@wrong(says="the dtype is wrong: give back the dtype that came in")
def in_single_precision(x, weight, bias):
    return F.linear(x.float(), mine(weight).float(), mine(bias).float())


@wrong(says="stands the other way round")
def not_transposed(x, weight, bias):
    return x @ mine(weight) + mine(bias)


@wrong(says="it was cut along the dimension that is added up over")
def cut_along_the_inputs(x, weight, bias):
    return F.linear(x, mine(weight, 1), mine(bias))
