"""Known answers to shard_layer."""

import functools
import itertools
from collections import namedtuple

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


def one_layer(
    layer,
    cut=lambda full, n, rank: full.chunk(n)[rank].clone(),
    wait=False,
    rest=True,
    size=lambda full: full.untyped_storage().nbytes(),
):
    n, rank = dist.get_world_size(), dist.get_rank()
    parameters = list(layer.parameters())
    full = flatten(parameters, n)
    shard = nn.Parameter(cut(full, n, rank))
    point_into(full, parameters)
    nbytes = size(full)

    def gather():
        full.untyped_storage().resize_(nbytes)
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


@wrong(says="there is a wait for the all_gather inside gather")
def a_finished_handle(layer):
    shard, gather, release = one_layer(layer)

    def waited():
        work = gather()
        work.wait()
        return work

    return shard, waited, release


@right
def shard_layer_by_tensors(layer):
    n, rank = dist.get_world_size(), dist.get_rank()
    parameters = list(layer.parameters())
    full = flatten(parameters, n)
    point_into(full, parameters)
    shard = nn.Parameter(torch.empty(full.numel() // n, dtype=full.dtype))
    with torch.no_grad():
        shard.copy_(full.view(n, -1)[rank])
    storage, nbytes = full.untyped_storage(), full.nbytes
    storage.resize_(0)

    def gather():
        storage.resize_(nbytes)
        return dist.all_gather_into_tensor(full, shard.detach(), async_op=True)

    return shard, gather, functools.partial(storage.resize_, 0)


@right
def shard_layer_of_a_class(layer):
    class Unit:
        def __init__(self):
            self.n = dist.get_world_size()
            self.parameters = list(layer.parameters())
            self.full = flat_of(self.parameters, self.n)
            self.shard = nn.Parameter(self.full.chunk(self.n)[dist.get_rank()].clone())
            self.nbytes = self.full.untyped_storage().nbytes()
            point_into(self.full, self.parameters)
            self.release()

        def gather(self):
            self.full.untyped_storage().resize_(self.nbytes)
            parts = list(self.full.chunk(self.n))
            return dist.all_gather(parts, self.shard.data, async_op=True)

        def release(self):
            self.full.untyped_storage().resize_(0)

    unit = Unit()
    return unit.shard, unit.gather, unit.release


@right
def shard_layer_of_views(layer):
    """The shard is cut out before anything is moved, and the list of parts is made only once."""
    n, rank = dist.get_world_size(), dist.get_rank()
    parameters = [*layer.parameters()]
    size = -(-sum(p.numel() for p in parameters) // n)
    row = torch.zeros(n * size, dtype=parameters[0].dtype)
    with torch.no_grad():
        torch.cat([p.reshape(-1) for p in parameters], out=row[: sum(map(torch.numel, parameters))])
    shard = nn.Parameter(row[rank * size : (rank + 1) * size].detach().clone())
    point_into(row, parameters)
    memory, parts = row.untyped_storage(), list(row.split(size))
    Unit = namedtuple("Unit", "shard gather release")

    def gather():
        memory.resize_(row.element_size() * row.numel())
        return dist.all_gather(parts, shard.data, async_op=True)

    memory.resize_(0)
    return Unit(shard, gather, lambda: memory.resize_(0))


@right
def shard_layer_in_a_dictionary(layer):
    n, rank = dist.get_world_size(), dist.get_rank()
    parameters = dict(layer.named_parameters())
    row = flatten(list(parameters.values()), n)
    offsets = itertools.accumulate((p.numel() for p in parameters.values()), initial=0)
    for (name, p), start in zip(parameters.items(), offsets, strict=False):
        parameters[name].data = row.narrow(0, start, p.numel()).unflatten(0, p.shape)
    held = {"row": row, "size": row.untyped_storage().size()}
    shard = nn.Parameter(row.chunk(n)[rank].clone(memory_format=torch.contiguous_format))

    def release():
        held["row"].untyped_storage().resize_(0)

    def gather():
        held["row"].untyped_storage().resize_(held["size"])
        out = list(held["row"].tensor_split(n))
        return dist.all_gather(out, shard.detach(), async_op=True)

    release()
    return (shard, gather, release)


@wrong(says="untyped_storage().resize_(size) takes bytes, not elements")
def a_size_in_elements(layer):
    return one_layer(layer, size=torch.Tensor.numel)


@wrong(says="more is kept in memory than is due")
def a_copy_for_safety(layer):
    whole = flatten(list(layer.parameters()), dist.get_world_size()).clone()
    shard, gather, release = one_layer(layer)

    def released():
        release()
        return len(whole)

    return shard, gather, released
