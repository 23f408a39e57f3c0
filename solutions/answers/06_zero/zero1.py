"""Known answers to zero1."""

import torch
import torch.distributed as dist
from torch import nn

from course_lib.checks.known_answers import right, wrong

from ._common import flat_of, flatten, learning, stage_1, unflatten, written_back


@right
def zero1(model, make_optimizer):
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    n, rank = dist.get_world_size(), dist.get_rank()
    own = [p for p in model.parameters() if p.requires_grad]
    shard = nn.Parameter(flat_of(own, n).chunk(n)[rank].clone())
    optimizer = make_optimizer([shard])

    def step():
        flat = flat_of([p.grad for p in own], n)
        shard.grad = torch.empty_like(shard)
        dist.reduce_scatter(shard.grad, list(flat.chunk(n)))
        shard.grad /= n
        optimizer.step()
        shard.grad = None
        dist.all_gather(list(flat.chunk(n)), shard.detach())
        written_back(flat, own)

    return step


@right
def zero1_uneven(model, make_optimizer):
    """No padding: every parameter is cut by itself, as tensor_split does, and is updated in place.

    The shards are views of the model's own parameters, so that nothing is copied.
    """
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    n, rank = dist.get_world_size(), dist.get_rank()
    own = [p for p in model.parameters() if p.requires_grad]
    flats = [p.data.view(-1) for p in own]
    shards = [nn.Parameter(flat.tensor_split(n)[rank]) for flat in flats]
    optimizer = make_optimizer(shards)

    def step():
        for p, shard in zip(own, shards, strict=True):
            shard.grad = torch.zeros_like(shard)
            dist.reduce_scatter(shard.grad, list(p.grad.view(-1).tensor_split(n)))
            shard.grad.div_(n)
        optimizer.step()
        optimizer.zero_grad()
        for flat in flats:
            for owner, part in enumerate(flat.tensor_split(n)):
                if part.numel():
                    dist.broadcast(part, owner)

    return step


@wrong(says="times the gradient: a sum, not the average")
def sum_of_gradients(model, make_optimizer):
    return stage_1(model, make_optimizer, average=lambda grad, n: grad)


@wrong(says="divided twice")
def mean_of_a_mean(model, make_optimizer):
    return stage_1(model, make_optimizer, average=lambda grad, n: grad / n / n)


@wrong(says="is not rank 0's (this is the rank's own start)")
def own_starts(model, make_optimizer):
    def start(p):
        if p.requires_grad:
            dist.broadcast(p.data, 0)

    return stage_1(model, make_optimizer, start=start)


@wrong(says="more than its share of SGD with momentum's state, all of it")
def replicated_optimizer(model, make_optimizer):
    """What data parallel does: all gradients, all of the state, everywhere."""
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    own, n = learning(model), dist.get_world_size()
    optimizer = make_optimizer(own)

    def step():
        for p in own:
            dist.all_reduce(p.grad)
            p.grad /= n
        optimizer.step()

    return step


@wrong(says="An all-reduce brings every rank all gradients")
def all_reduce_then_gather(model, make_optimizer):
    """DeepSpeed's first stage 1."""
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    n, rank, own = dist.get_world_size(), dist.get_rank(), learning(model)
    shard = nn.Parameter(flatten(own, n).chunk(n)[rank].clone())
    optimizer = make_optimizer([shard])

    def step():
        flat = flatten([p.grad for p in own], n)
        dist.all_reduce(flat)
        shard.grad = flat.chunk(n)[rank] / n
        optimizer.step()
        dist.all_gather(list(flat.chunk(n)), shard.detach())
        unflatten(flat, own)

    return step


@wrong(says="are wrong (the last ones)")
def nobody_gathers(model, make_optimizer):
    def own_part_only(parts, shard):
        parts[dist.get_rank()].copy_(shard)

    return stage_1(model, make_optimizer, gather=own_part_only)


@wrong(says="more than its share of SGD with momentum's state")
def whole_tensors_dealt_out(model, make_optimizer):
    """ZeroRedundancyOptimizer deals out whole parameters: the largest decides."""
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    n, rank, own = dist.get_world_size(), dist.get_rank(), learning(model)
    mine = own[rank::n]
    optimizer = make_optimizer(mine) if mine else None

    def step():
        for i, p in enumerate(own):
            dist.reduce(p.grad, i % n)
            p.grad /= n
        if optimizer:
            optimizer.step()
        for i, p in enumerate(own):
            dist.broadcast(p.data, i % n)

    return step


@wrong(says="return the function step itself")
def steps_at_once(model, make_optimizer):
    for p in model.parameters():
        dist.broadcast(p.data, 0)


@wrong(says="more is kept in memory than is due")
def a_shard_without_a_clone(model, make_optimizer):
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    n, rank, own = dist.get_world_size(), dist.get_rank(), learning(model)
    shard = nn.Parameter(flatten(own, n).chunk(n)[rank])
    optimizer = make_optimizer([shard])

    def step():
        row = flatten([p.grad for p in own], n)
        mine = torch.empty(shard.shape, dtype=shard.dtype)
        dist.reduce_scatter(mine, list(row.chunk(n)))
        shard.grad = mine / n
        optimizer.step()
        shard.grad = None
        dist.all_gather(list(row.chunk(n)), shard.detach().clone())
        unflatten(row, own)

    return step


@wrong(says="more is kept in memory than is due")
def gradient_of_the_shard_stays(model, make_optimizer):
    return stage_1(model, make_optimizer)


@right
def zero1_of_a_class(model, make_optimizer):
    class Sharded:
        def __init__(self):
            self.n, self.rank = dist.get_world_size(), dist.get_rank()
            self.own = learning(model)
            self.shard = nn.Parameter(self.row(self.own).clone())
            self.optimizer = make_optimizer([self.shard])

        def row(self, tensors):
            return flatten(tensors, self.n).chunk(self.n)[self.rank]

        def __call__(self):
            row = flatten([p.grad for p in self.own], self.n)
            mine = torch.zeros_like(self.shard)
            dist.reduce_scatter_tensor(mine, row)
            self.shard.grad = mine.div_(self.n)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            dist.all_gather_into_tensor(row, self.shard.data)
            unflatten(row, self.own)

    with torch.no_grad():
        for p in model.parameters():
            dist.broadcast(p, src=0)
    return Sharded()


@right
def zero1_cut_tensor_by_tensor(model, make_optimizer):
    """A shard for each parameter, in one optimizer."""
    for p in model.parameters():
        dist.broadcast(p.detach(), 0)
    n, rank = dist.get_world_size(), dist.get_rank()
    pairs = [(p, nn.Parameter(flat_of([p], n).chunk(n)[rank].clone())) for p in learning(model)]
    optimizer = make_optimizer(shard for _, shard in pairs)

    def step():
        for p, shard in pairs:
            shard.grad = torch.empty_like(shard)
            dist.reduce_scatter(shard.grad, list((flat_of([p.grad], n) / n).chunk(n)))
        optimizer.step()
        for p, shard in pairs:
            shard.grad = None
            row = torch.empty(n * shard.numel(), dtype=shard.dtype)
            dist.all_gather(list(row.chunk(n)), shard.detach())
            written_back(row, [p])

    return step


@right
def zero1_by_reduce_and_broadcast(model, make_optimizer):
    """Each chunk is reduced to its owner and broadcast by it: the same bytes in all."""
    n, rank = dist.get_world_size(), dist.get_rank()
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    own = learning(model)
    shard = nn.Parameter(flatten(own, n).chunk(n)[rank].clone())
    optimizer = make_optimizer([shard])

    def step():
        row = flatten([p.grad for p in own], n)
        chunks = row.chunk(n)
        for owner, chunk in enumerate(chunks):
            dist.reduce(chunk, owner)
        shard.grad = chunks[rank] / n
        optimizer.step()
        shard.grad = None
        chunks[rank].copy_(shard.detach())
        for owner, chunk in enumerate(chunks):
            dist.broadcast(chunk, owner)
        written_back(row, own)

    return step


@wrong(says="cut it out after the ranks were made equal")
def cut_before_the_broadcast(model, make_optimizer):
    n, rank, own = dist.get_world_size(), dist.get_rank(), learning(model)
    shard = nn.Parameter(flatten(own, n).chunk(n)[rank].clone())
    optimizer = make_optimizer([shard])
    for p in model.parameters():
        dist.broadcast(p.data, 0)

    def step():
        flat = flatten([p.grad for p in own], n)
        mine = torch.empty_like(shard)
        dist.reduce_scatter(mine, list(flat.chunk(n)))
        shard.grad = mine / n
        optimizer.step()
        shard.grad = None
        dist.all_gather(list(flat.chunk(n)), shard.detach())
        unflatten(flat, own)

    return step


@wrong(says="make it once")
def a_new_optimizer_in_every_step(model, make_optimizer):
    return stage_1(model, lambda shards: Forgetful(shards, make_optimizer))


class Forgetful:
    def __init__(self, shards, make_optimizer):
        self.shards, self.make_optimizer = shards, make_optimizer

    def step(self):
        self.make_optimizer(self.shards).step()
        self.shards[0].grad = None
