"""Known answers to shard_layer."""

import torch
import torch.distributed as dist
from torch import nn

from course_lib.checks.known_answers import right, wrong

from ._common import flat_of, flatten


@right
def shard_layer(layer):
    n, rank = dist.get_world_size(), dist.get_rank()
    parameters = list(layer.parameters())
    full = flat_of(parameters, n)
    shard = nn.Parameter(full.chunk(n)[rank].clone())
    size, rest = full.untyped_storage().size(), full
    for p in parameters:
        p.data, rest = rest[: p.numel()].view_as(p), rest[p.numel() :]

    def gather():
        full.untyped_storage().resize_(size)
        return dist.all_gather(list(full.chunk(n)), shard.detach(), async_op=True)

    def release():
        full.untyped_storage().resize_(0)

    release()
    return shard, gather, release


def point_into(full, parameters):
    start = 0
    for p in parameters:
        p.data = full[start : start + p.numel()].view_as(p)
        start += p.numel()


def one_layer(layer, cut=lambda full, n, rank: full.chunk(n)[rank].clone(), wait=False, rest=True):
    n, rank = dist.get_world_size(), dist.get_rank()
    parameters = list(layer.parameters())
    full = flatten(parameters, n)
    shard = nn.Parameter(cut(full, n, rank))
    point_into(full, parameters)
    size = full.untyped_storage().nbytes()

    def gather():
        full.untyped_storage().resize_(size)
        work = dist.all_gather(list(full.chunk(n)), shard.detach(), async_op=True)
        return work.wait() if wait else work

    def release():
        full.untyped_storage().resize_(0)

    if rest:
        release()
    return shard, gather, release


@wrong(says="the shard is a view, and keeps the whole layer in memory")
def a_view_for_a_shard(layer):
    n, rank = dist.get_world_size(), dist.get_rank()
    parameters = list(layer.parameters())
    flat = flatten(parameters, n)
    full = flat.clone()
    shard = nn.Parameter(flat.chunk(n)[rank])
    point_into(full, parameters)
    size = full.untyped_storage().nbytes()

    def gather():
        full.untyped_storage().resize_(size)
        return dist.all_gather(list(full.chunk(n)), shard.detach(), async_op=True)

    def release():
        full.untyped_storage().resize_(0)

    release()
    return shard, gather, release


@wrong(says="this is the shard of rank 0")
def rank_0s_shard(layer):
    return one_layer(layer, cut=lambda full, n, rank: full.chunk(n)[0].clone())


@wrong(says="pass async_op=True and return the handle")
def a_gather_that_waits(layer):
    return one_layer(layer, wait=True)


@wrong(says="before the first gather the parameters still take memory")
def whole_until_the_first_release(layer):
    return one_layer(layer, rest=False)


@wrong(says="autograd has saved the old one for backward")
def other_memory_each_time(layer):
    n, rank = dist.get_world_size(), dist.get_rank()
    parameters = list(layer.parameters())
    shapes = [torch.empty(p.shape, device="meta") for p in parameters]
    shard = nn.Parameter(flatten(parameters, n).chunk(n)[rank].clone())

    def gather():
        full = torch.empty(n * shard.numel(), dtype=shard.dtype)
        start = 0
        for p, shape in zip(parameters, shapes, strict=True):
            p.data = full[start : start + shape.numel()].view(shape.shape)
            start += shape.numel()
        return dist.all_gather(list(full.chunk(n)), shard.detach(), async_op=True)

    def release():
        for p in parameters:
            p.data = torch.empty(0, dtype=shard.dtype)

    release()
    return shard, gather, release


@wrong(says="after release the parameters still take memory")
def nothing_is_released(layer):
    shard, gather, release = one_layer(layer)
    return shard, gather, lambda: None


@wrong(says="a tuple of three is expected")
def only_the_shard(layer):
    return one_layer(layer)[0]


@wrong(says="make it an nn.Parameter")
def a_plain_tensor(layer):
    shard, gather, release = one_layer(layer)
    return shard.detach(), gather, release


@wrong(says="has lost its numbers with it: clone it")
def a_shard_without_a_clone(layer):
    return one_layer(layer, cut=lambda full, n, rank: full.chunk(n)[rank])


@wrong(says="gather() returned nothing")
def a_gather_without_a_return(layer):
    shard, gather, release = one_layer(layer)

    def start():
        gather()

    return shard, start, release


@wrong(says="point_into(full, parameters) puts them there")
def parameters_left_where_they_are(layer):
    n, rank = dist.get_world_size(), dist.get_rank()
    full = flatten(list(layer.parameters()), n)
    size = full.untyped_storage().nbytes()
    shard = nn.Parameter(full.chunk(n)[rank].clone())

    def gather():
        full.untyped_storage().resize_(size)
        return dist.all_gather(list(full.chunk(n)), shard.detach(), async_op=True)

    def release():
        full.untyped_storage().resize_(0)

    release()
    return shard, gather, release


@wrong(says="gather waits for its own all-gather")
def a_finished_handle(layer):
    shard, gather, release = one_layer(layer)

    def waited():
        work = gather()
        work.wait()
        return work

    return shard, waited, release
