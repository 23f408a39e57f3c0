"""Known answers to zero2."""

import functools
from collections import OrderedDict

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


@wrong(says="began after backward had ended")
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


@right
def zero2_by_tensors(model, make_optimizer):
    """With the *_tensor calls, a dictionary by name, and no padding where nothing is missing."""
    n, rank = dist.get_world_size(), dist.get_rank()
    named = {name: p for name, p in model.named_parameters() if p.requires_grad}
    parts = {name: flat_of([p], n).chunk(n)[rank] for name, p in named.items()}
    shards = {name: nn.Parameter(part.clone()) for name, part in parts.items()}
    names = {p: name for name, p in named.items()}
    optimizer = make_optimizer(shards.values())

    def hook(p):
        mine = torch.empty_like(shards[names[p]])
        dist.reduce_scatter_tensor(mine, flat_of([p.grad], n))
        p.grad = None
        shards[names[p]].grad = mine.mul_(1 / n)

    for p in named.values():
        p.register_post_accumulate_grad_hook(hook)

    def step():
        optimizer.step()
        for name, shard in shards.items():
            shard.grad = None
            row = shard.new_empty(n * shard.numel())
            dist.all_gather_into_tensor(row, shard.detach())
            written_back(row, [named[name]])

    return step


@right
def zero2_with_a_partial(model, make_optimizer):
    n, rank = dist.get_world_size(), dist.get_rank()
    units = []

    def send(shard, p):
        parts = list(flat_of([p.grad / n], n).chunk(n))
        p.grad = None
        shard.grad = torch.zeros_like(shard)
        dist.reduce_scatter(shard.grad, parts, op=dist.ReduceOp.SUM, async_op=True).wait()

    for p in filter(lambda p: p.requires_grad, model.parameters()):
        shard = nn.Parameter(flat_of([p], n).view(n, -1)[rank].clone())
        p.register_post_accumulate_grad_hook(functools.partial(send, shard))
        units.append((p, shard))
    optimizer = make_optimizer([shard for _, shard in units])

    def step():
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for p, shard in units:
            parts = [torch.empty_like(shard) for _ in range(n)]
            dist.all_gather(parts, shard.detach())
            written_back(torch.cat(parts), [p])

    return step


@right
def zero2_that_gathers_all_at_once(model, make_optimizer):
    """One all-gather of all shards in one row, and the parameters are read out of its columns."""
    n, rank = dist.get_world_size(), dist.get_rank()
    own = [p for p in model.parameters() if p.requires_grad]
    shards = OrderedDict((p, nn.Parameter(flat_of([p], n).chunk(n)[rank].clone())) for p in own)
    optimizer = make_optimizer(list(shards.values()))

    def hook(p):
        row, p.grad = flat_of([p.grad], n), None
        mine = torch.empty_like(shards[p])
        dist.reduce_scatter(mine, list(row.chunk(n)))
        shards[p].grad = mine / n

    for p in own:
        p.register_post_accumulate_grad_hook(hook)

    def step():
        optimizer.step()
        optimizer.zero_grad()
        mine = torch.cat([shard.detach() for shard in shards.values()])
        rows = mine.new_empty(n, mine.numel())
        dist.all_gather(list(rows), mine)
        columns = rows.split([shard.numel() for shard in shards.values()], dim=1)
        for p, part in zip(own, columns, strict=True):
            written_back(part.reshape(-1), [p])

    return step


@wrong(says="an optimizer stepped inside backward")
def updated_in_the_hook(model, make_optimizer):
    n, rank, own = dist.get_world_size(), dist.get_rank(), learning(model)
    shards = {p: nn.Parameter(flatten([p], n).chunk(n)[rank].clone()) for p in own}
    optimizers = {p: make_optimizer([shard]) for p, shard in shards.items()}

    def send_and_update(p):
        flat, p.grad = flatten([p.grad], n), None
        mine = torch.empty_like(shards[p])
        dist.reduce_scatter(mine, list(flat.chunk(n)))
        shards[p].grad = mine / n
        optimizers[p].step()
        shards[p].grad = None

    for p in own:
        p.register_post_accumulate_grad_hook(send_and_update)

    def step():
        for p, shard in shards.items():
            flat = flatten([p], n)
            dist.all_gather(list(flat.chunk(n)), shard.detach())
            unflatten(flat, [p])

    return step


@wrong(says="'first.bias' after it: the values differ")
def shards_found_by_shape(model, make_optimizer):
    """Two parameters of the same shape share a shard."""
    n, rank, own = dist.get_world_size(), dist.get_rank(), learning(model)
    shards = {p.shape: nn.Parameter(flatten([p], n).chunk(n)[rank].clone()) for p in own}
    optimizer = make_optimizer(list(shards.values()))

    def send(p):
        flat, p.grad = flatten([p.grad], n), None
        mine = torch.empty_like(shards[p.shape])
        dist.reduce_scatter(mine, list(flat.chunk(n)))
        shards[p.shape].grad = mine / n

    for p in own:
        p.register_post_accumulate_grad_hook(send)

    def step():
        optimizer.step()
        optimizer.zero_grad()
        for p in own:
            flat = flatten([p], n)
            dist.all_gather(list(flat.chunk(n)), shards[p.shape].detach())
            unflatten(flat, [p])

    return step


@wrong(says="runs before backward writes .grad")
def hooks_before_the_gradient_is_there(model, make_optimizer):
    n, rank, own = dist.get_world_size(), dist.get_rank(), learning(model)
    shards = {p: nn.Parameter(flatten([p], n).chunk(n)[rank].clone()) for p in own}
    optimizer = make_optimizer(list(shards.values()))

    def send(p, gradient):
        mine = torch.empty_like(shards[p])
        dist.reduce_scatter(mine, list(flatten([gradient], n).chunk(n)))
        shards[p].grad, p.grad = mine / n, None

    for p in own:
        p.register_hook(functools.partial(send, p))

    def step():
        optimizer.step()
        optimizer.zero_grad()
        for p, shard in shards.items():
            flat = flatten([p], n)
            dist.all_gather(list(flat.chunk(n)), shard.detach())
            unflatten(flat, [p])

    return step
