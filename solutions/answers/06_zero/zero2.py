"""Known answers to zero2."""

import torch
import torch.distributed as dist
from torch import nn

from course_lib.checks.known_answers import right, wrong

from ._common import flat_of, flatten, learning, stage_1, unflatten, written_back


@right
def zero2(model, make_optimizer):
    n, rank = dist.get_world_size(), dist.get_rank()
    own = [p for p in model.parameters() if p.requires_grad]
    shards = {p: nn.Parameter(flat_of([p], n).chunk(n)[rank].clone()) for p in own}
    optimizer = make_optimizer(list(shards.values()))

    def send(p):
        flat, p.grad = flat_of([p.grad], n), None
        mine = torch.empty_like(shards[p])
        dist.reduce_scatter(mine, list(flat.chunk(n)))
        shards[p].grad = mine / n

    for p in own:
        p.register_post_accumulate_grad_hook(send)

    def step():
        optimizer.step()
        optimizer.zero_grad()
        for p, shard in shards.items():
            flat = flat_of([p], n)
            dist.all_gather(list(flat.chunk(n)), shard.detach())
            written_back(flat, [p])

    return step


@right
def zero2_one_ahead(model, make_optimizer):
    """Asynchronous, with one reduce-scatter under way at a time; an optimizer for each shard."""
    n, rank = dist.get_world_size(), dist.get_rank()
    own = [p for p in model.parameters() if p.requires_grad]
    shards = [nn.Parameter(flat_of([p], n).chunk(n)[rank].clone()) for p in own]
    optimizers = [make_optimizer([shard]) for shard in shards]
    waiting = []

    def land():
        while waiting:
            work, shard, _ = waiting.pop()
            work.wait()
            shard.grad /= n

    def hook_for(shard):
        def hook(p):
            flat = flat_of([p.grad], n)
            p.grad = None
            land()
            shard.grad = torch.empty_like(shard)
            work = dist.reduce_scatter(shard.grad, list(flat.chunk(n)), async_op=True)
            waiting.append((work, shard, flat))

        return hook

    for p, shard in zip(own, shards, strict=True):
        p.register_post_accumulate_grad_hook(hook_for(shard))

    def step():
        land()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        flat = torch.cat(shards).detach()
        whole = flat.new_empty(n, flat.numel())
        dist.all_gather(list(whole), flat)
        parts = whole.split([s.numel() for s in shards], dim=1)
        for p, part in zip(own, parts, strict=True):
            p.data.copy_(part.reshape(-1)[: p.numel()].view_as(p))

    return step


def stage_2(model, make_optimizer, send=None, before_step=None, free=True):
    """send(p, reduce): what the hook does; reduce(p) is the right thing to do."""
    n, rank, own = dist.get_world_size(), dist.get_rank(), learning(model)
    shards = {p: nn.Parameter(flatten([p], n).chunk(n)[rank].clone()) for p in own}
    optimizer = make_optimizer(list(shards.values()))

    def reduce(p):
        flat = flatten([p.grad], n)
        if free:
            p.grad = None
        mine = torch.empty_like(shards[p])
        dist.reduce_scatter(mine, list(flat.chunk(n)))
        shards[p].grad = mine / n

    for p in own:
        p.register_post_accumulate_grad_hook(lambda p: send(p, reduce) if send else reduce(p))

    def step():
        if before_step:
            before_step(own, reduce)
        optimizer.step()
        for p, shard in shards.items():
            flat = flatten([p], n)
            dist.all_gather(list(flat.chunk(n)), shard.detach())
            unflatten(flat, [p])

    return step


@wrong(says="after backward gradients are still there")
def stage_1_for_stage_2(model, make_optimizer):
    return stage_1(model, make_optimizer)


@wrong(says="after backward gradients are still there")
def sent_but_kept(model, make_optimizer):
    return stage_2(model, make_optimizer, free=False)


@wrong(says="gradients wait for each other in .grad")
def all_at_the_end_of_backward(model, make_optimizer):
    ready = []

    def send(p, reduce):
        ready.append(p)
        if len(ready) == len(learning(model)):
            for p in ready:
                reduce(p)
            ready.clear()

    return stage_2(model, make_optimizer, send)


@wrong(says="reduce-scatters began after backward")
def copies_sent_in_step(model, make_optimizer):
    waiting = {}

    def send(p, _):
        waiting[p], p.grad = p.grad, None

    def before_step(own, reduce):
        for p in own:
            p.grad = waiting.pop(p)
            reduce(p)

    return stage_2(model, make_optimizer, send, before_step)


@wrong(says="what is being sent is memory too")
def all_under_way_at_once(model, make_optimizer):
    n, rank, own = dist.get_world_size(), dist.get_rank(), learning(model)
    shards = {p: nn.Parameter(flatten([p], n).chunk(n)[rank].clone()) for p in own}
    optimizer = make_optimizer(list(shards.values()))
    works = []

    def send(p):
        flat = flatten([p.grad], n)
        p.grad = None
        mine = torch.empty_like(shards[p])
        work = dist.reduce_scatter(mine, list(flat.chunk(n)), async_op=True)
        works.append((work, p, mine, flat))

    for p in own:
        p.register_post_accumulate_grad_hook(send)

    def step():
        for work, p, mine, _ in works:
            work.wait()
            shards[p].grad = mine / n
        works.clear()
        optimizer.step()
        for p, shard in shards.items():
            flat = flatten([p], n)
            dist.all_gather(list(flat.chunk(n)), shard.detach())
            unflatten(flat, [p])

    return step


@wrong(says="An all-reduce brings every rank all gradients")
def all_reduced_in_the_hook(model, make_optimizer):
    n, rank, own = dist.get_world_size(), dist.get_rank(), learning(model)
    shards = {p: nn.Parameter(flatten([p], n).chunk(n)[rank].clone()) for p in own}
    optimizer = make_optimizer(list(shards.values()))

    def send(p):
        flat = flatten([p.grad], n)
        p.grad = None
        dist.all_reduce(flat)
        shards[p].grad = flat.chunk(n)[rank] / n

    for p in own:
        p.register_post_accumulate_grad_hook(send)

    def step():
        optimizer.step()
        for p, shard in shards.items():
            flat = flatten([p], n)
            dist.all_gather(list(flat.chunk(n)), shard.detach())
            unflatten(flat, [p])

    return step


@wrong(says="more is kept in memory than is due")
def rows_in_a_dictionary(model, make_optimizer):
    rows = {}

    def send(p, reduce):
        rows[p] = p.grad
        reduce(p)

    return stage_2(model, make_optimizer, send)


@wrong(says="more is kept in memory than is due")
def gradients_of_the_shards_stay(model, make_optimizer):
    return stage_2(model, make_optimizer)


@wrong(says="one that is a view into the row keeps all of the row")
def reduced_into_a_view_of_the_row(model, make_optimizer):
    n, rank, own = dist.get_world_size(), dist.get_rank(), learning(model)
    shards = {p: nn.Parameter(flatten([p], n).chunk(n)[rank].clone()) for p in own}
    optimizer = make_optimizer(list(shards.values()))

    def send(p):
        row, p.grad = flatten([p.grad], n), None
        mine = torch.empty_like(row).chunk(n)[rank]
        dist.reduce_scatter(mine, list(row.chunk(n)))
        mine /= n
        shards[p].grad = mine

    for p in own:
        p.register_post_accumulate_grad_hook(send)

    def step():
        optimizer.step()
        optimizer.zero_grad()
        for p, shard in shards.items():
            row = flatten([p], n)
            dist.all_gather(list(row.chunk(n)), shard.detach())
            unflatten(row, [p])

    return step
