"""Known answers to row_linear."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.checks.known_answers import right, wrong

from ._common import mine, summed


@right
def row_linear(x_part, weight, bias):
    size, rank = x_part.shape[-1], dist.get_rank()
    y = F.linear(x_part, weight[:, rank * size : (rank + 1) * size], bias if rank == 0 else None)
    total = y.detach().clone()
    dist.all_reduce(total)
    return total


@wrong(says="it was added on each of 2 ranks, and they were summed")
def bias_on_every_rank(x_part, weight, bias):
    return summed(F.linear(x_part, mine(weight, 1), bias))


@wrong(says="they have to be added up over the ranks")
def never_added_up(x_part, weight, bias):
    return F.linear(x_part, mine(weight, 1), bias)


@wrong(says="the average of the summands")
def averaged_summands(x_part, weight, bias):
    return summed(x_part @ mine(weight, 1).T) / dist.get_world_size() + bias


@wrong(says="add it once, after the sum")
def bias_forgotten(x_part, weight, bias):
    return summed(x_part @ mine(weight, 1).T)


@wrong(says="your ranks ran all_gather")
def input_gathered(x_part, weight, bias):
    """Right numbers, but every rank does the whole product."""
    parts = [torch.empty_like(x_part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x_part.detach())
    return F.linear(torch.cat(parts, -1), weight, bias)


@wrong(says="one all-reduce of the output adds the summands up")
def added_up_twice(x_part, weight, bias):
    total = summed(x_part @ mine(weight, 1).T)
    return summed(total) / dist.get_world_size() + bias


@wrong(says="each rank multiplies its own rows only")
def with_zeros_around_it(x_part, weight, bias):
    t, rank, size = dist.get_world_size(), dist.get_rank(), x_part.shape[-1]
    whole = F.pad(x_part, (rank * size, (t - 1 - rank) * size))
    return summed(whole @ weight.T) + bias


@right
def in_place_as_it_comes(x_part, weight, bias):
    y = x_part @ weight.chunk(dist.get_world_size(), dim=1)[dist.get_rank()].T
    dist.all_reduce(y)
    return y + bias


@right
def a_part_of_the_bias_on_each_rank(x_part, weight, bias):
    return summed(F.linear(x_part, mine(weight, 1), bias / dist.get_world_size()))


@right
def waited_for(x_part, weight, bias):
    y = torch.einsum("bk,nk->bn", x_part, mine(weight, 1))
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    return y.add_(bias)


@right
def by_outer_products(x_part, weight, bias):
    own = mine(weight, 1)
    y = sum(torch.outer(x_part[:, k], own[:, k]) for k in range(x_part.shape[1]))
    dist.all_reduce(y, op=dist.ReduceOp.SUM)
    return torch.add(y, bias)


@wrong(says="each rank multiplies its own rows only")
def zeros_vector_by_vector(x_part, weight, bias):
    rank, size = dist.get_rank(), x_part.shape[1]
    whole = x_part.new_zeros(len(x_part), weight.shape[1])
    whole[:, rank * size : (rank + 1) * size] = x_part
    return summed(torch.stack([weight @ row for row in whole])) + bias


@wrong(says="your function returned nothing")
def nothing_returned(x_part, weight, bias):
    y = x_part @ mine(weight, 1).T
    dist.all_reduce(y)
    y += bias


@wrong(says="the first is a part, so take the same part of the second")
def by_the_whole_weight(x_part, weight, bias):
    return summed(x_part @ weight.T) + bias
