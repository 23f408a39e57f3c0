"""Known answers to rank_tensor."""

import numpy
import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


@right
def rank_tensor(size):
    return torch.ones(size).mul_(dist.get_rank())


@right
def rank_without_memory_of_its_own(size):
    """One number, seen `size` times."""
    return torch.tensor(float(dist.get_rank())).expand(size)


@right
def rank_from_numpy(size):
    return torch.from_numpy(numpy.full(size, dist.get_rank(), dtype="float32"))


@right
def rank_from_a_list(size):
    return torch.Tensor([dist.get_rank()] * size)


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


@wrong(says="this is 0, 1, 2, ... instead of the rank")
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


@wrong(says="the dtype is float64: ask for dtype=torch.float32")
def rank_in_float64(size):
    return torch.full((size,), dist.get_rank(), dtype=torch.float64)


kept = {}


@wrong(says="in the memory of what an earlier call returned")
def rank_kept_for_the_next_call(size):
    if size not in kept:
        kept[size] = torch.full((size,), float(dist.get_rank()))
    return kept[size]


@wrong(says="every rank returned the same")
def rank_from_a_table_of_small_sizes(size):
    return torch.full((size,), float(dist.get_rank() if size < 10 else 0))


@right
def rank_by_arithmetic(size):
    return torch.zeros(size).add_(dist.get_rank())


@wrong(says="look at what is new in this one")
def needs_at_least_one(size):
    return torch.stack([torch.tensor(float(dist.get_rank()))] * size)
