"""Known answers to rank_tensor."""

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


@right
def rank_tensor(size):
    return torch.ones(size).mul_(dist.get_rank())


NOTEBOOKS_RANK = 0


@wrong(says="every rank returned the same")
def rank_of_the_notebook(size):
    return torch.full((size,), float(NOTEBOOKS_RANK))


@wrong(says="the world size, not the rank")
def rank_or_world_size(size):
    return torch.full((size,), float(dist.get_world_size() if dist.get_rank() else 0))


@wrong(says="ranks are counted from 0")
def rank_from_one(size):
    return torch.full((size,), dist.get_rank() + 1.0)


@wrong(says="ask for dtype=torch.float32")
def rank_as_integers(size):
    return torch.full((size,), dist.get_rank())


@wrong(says="this is 0, 1, 2, ..., and not the rank")
def rank_as_positions(size):
    return torch.arange(size, dtype=torch.float32) if dist.get_rank() else torch.zeros(size)


@wrong(says="the shape is wrong")
def rank_as_one_number(size):
    return torch.tensor([float(dist.get_rank())])


@wrong(says="this is a list, not a tensor")
def rank_as_a_list(size):
    return [float(dist.get_rank())] * size


@wrong(says="your ranks ran broadcast")
def rank_that_is_told(size):
    x = torch.full((size,), float(dist.get_rank()))
    dist.broadcast(x.clone(), src=0)
    return x


@wrong(says="raised IndexError")
def rank_out_of_a_table(size):
    return [torch.full((size,), float(rank)) for rank in range(4)][dist.get_rank()]
