"""Wrong answers to notebook 06, each of which its check must reject with the words given."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from course_lib.checks.zoo import wrong

# ---------------------------------------------------------------------------------------------
# what the notebook gives, and right answers with a place to break
# ---------------------------------------------------------------------------------------------


def flatten(tensors, n):
    flat = torch.cat([t.detach().reshape(-1) for t in tensors])
    return nn.functional.pad(flat, (0, -flat.numel() % n))


def unflatten(flat, tensors):
    start = 0
    for t in tensors:
        t.data.copy_(flat[start : start + t.numel()].view_as(t))
        start += t.numel()


def learning(model):
    return [p for p in model.parameters() if p.requires_grad]


def stage_1(
    model,
    make_optimizer,
    start=lambda p: dist.broadcast(p.data, 0),
    average=lambda grad, n: grad / n,
    gather=lambda parts, shard: dist.all_gather(parts, shard),
    choose=learning,
):
    for p in model.parameters():
        start(p)
    n, rank, own = dist.get_world_size(), dist.get_rank(), choose(model)
    shard = nn.Parameter(flatten(own, n).chunk(n)[rank].clone())
    optimizer = make_optimizer([shard])

    def step():
        flat = flatten([p.grad for p in own], n)
        mine = torch.empty_like(shard)
        dist.reduce_scatter(mine, list(flat.chunk(n)))
        shard.grad = average(mine, n)
        optimizer.step()
        gather(list(flat.chunk(n)), shard.detach())
        unflatten(flat, own)

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


def layer_by_layer(
    units,
    x,
    y,
    loss,
    ahead=True,
    early=False,
    release=lambda unit: unit.release(),
    back=lambda unit: unit.release(),
    reduce=lambda unit: unit.reduce(),
    result=lambda value: value.detach(),
):
    """ahead: prefetch. early: and wait for it at once."""
    coming, kept, h = {}, [], x

    def fetch(i):
        if 0 <= i < len(units) and i not in coming:
            coming[i] = units[i].gather()
            return coming[i]
        return None

    def arrive(i, following):
        fetch(i)
        work = coming.pop(i)
        if not (early and i in arrived):
            work.wait()
        if ahead and (work := fetch(following)) and early:
            work.wait()
            arrived.add(following)

    arrived = set()
    for i, unit in enumerate(units):
        arrive(i, i + 1)
        h = h.detach().requires_grad_(i > 0)
        output = unit.module(h)
        kept.append((h, output))
        h = output
        release(unit)
    top = h.detach().requires_grad_()
    value = loss(top, y)
    value.backward()
    gradient = top.grad
    arrived.clear()
    for i in reversed(range(len(units))):
        arrive(i, i - 1)
        h, output = kept.pop()
        output.backward(gradient)
        gradient = h.grad
        back(units[i])
        reduce(units[i])
    return result(value)


def masters(model, make_optimizer, down=None, up=None, keep=False, choose=learning, anew=False):
    own = choose(model)
    copies = [nn.Parameter(p.detach().float()) for p in own]
    optimizer = make_optimizer(copies)

    def step():
        for p, copy in zip(own, copies, strict=True):
            if anew:
                copy.data.copy_(p)
            copy.grad = down(p) if down else p.grad.float()
        optimizer.step()
        for p, copy in zip(own, copies, strict=True):
            p.data.copy_(up(copy.detach()) if up else copy)
            if not keep:
                copy.grad = None

    return step


def clip(shards, replicated, max_norm, square, factor=lambda norm, most: min(1.0, most / norm)):
    """square(parts, copies): the square of the norm, from the sums of squares of this rank."""
    parts = torch.zeros(1, dtype=torch.float64)
    for p in shards:
        if p.grad is not None:
            parts += (p.grad**2).sum()
    copies = torch.zeros(1, dtype=torch.float64)
    for p in replicated:
        copies += (p.grad**2).sum()
    norm = square(parts, copies).sqrt()
    for p in [*shards, *replicated]:
        if p.grad is not None:
            p.grad *= factor(float(norm), max_norm)
    return norm


def summed(tensor):
    dist.all_reduce(tensor)
    return tensor


# ---------------------------------------------------------------------------------------------
# held_bytes
# ---------------------------------------------------------------------------------------------


@wrong("held_bytes", says="memory that several tensors share is counted more than once")
def elements_times_size(tensors):
    return sum(t.numel() * t.element_size() for t in tensors if t is not None)


@wrong("held_bytes", says="these are elements")
def elements(tensors):
    return sum(t.numel() for t in tensors if t is not None)


@wrong("held_bytes", says="not every element has four bytes")
def four_bytes_each(tensors):
    return sum(4 * t.numel() for t in tensors if t is not None)


@wrong("held_bytes", says="a view keeps all of the tensor that it looks into")
def addresses_of_tensors(tensors):
    found = {t.data_ptr(): t.nbytes for t in tensors if t is not None}
    return sum(found.values())


@wrong("held_bytes", says="memory that several tensors share is counted more than once")
def tensors_told_apart_by_id(tensors):
    return sum({id(t): t.untyped_storage().nbytes() for t in tensors if t is not None}.values())


@wrong("held_bytes", says="None has no bytes")
def no_gradient_yet(tensors):
    return sum({t.untyped_storage().data_ptr(): t.nbytes for t in tensors}.values())


# ---------------------------------------------------------------------------------------------
# zero1
# ---------------------------------------------------------------------------------------------


@wrong("zero1", says="you summed, an average is asked")
def sum_of_gradients(model, make_optimizer):
    return stage_1(model, make_optimizer, average=lambda grad, n: grad)


@wrong("zero1", says="divided twice")
def mean_of_a_mean(model, make_optimizer):
    return stage_1(model, make_optimizer, average=lambda grad, n: grad / n / n)


@wrong("zero1", says="is not rank 0's (this is the rank's own start)")
def own_starts(model, make_optimizer):
    def start(p):
        if p.requires_grad:
            dist.broadcast(p.data, 0)

    return stage_1(model, make_optimizer, start=start)


@wrong("zero1", says="more than its share of SGD with momentum's state, all of it")
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


@wrong("zero1", says="An all-reduce brings every rank all gradients")
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


@wrong("zero1", says="are wrong (the last ones)")
def nobody_gathers(model, make_optimizer):
    def own_part_only(parts, shard):
        parts[dist.get_rank()].copy_(shard)

    return stage_1(model, make_optimizer, gather=own_part_only)


@wrong("zero1", says="more than its share of SGD with momentum's state")
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


@wrong("zero1", says="return the function step itself")
def steps_at_once(model, make_optimizer):
    for p in model.parameters():
        dist.broadcast(p.data, 0)


# ---------------------------------------------------------------------------------------------
# zero2
# ---------------------------------------------------------------------------------------------


@wrong("zero2", says="after backward gradients are still there")
def stage_1_for_stage_2(model, make_optimizer):
    return stage_1(model, make_optimizer)


@wrong("zero2", says="after backward gradients are still there")
def sent_but_kept(model, make_optimizer):
    return stage_2(model, make_optimizer, free=False)


@wrong("zero2", says="gradients wait for each other in .grad")
def all_at_the_end_of_backward(model, make_optimizer):
    ready = []

    def send(p, reduce):
        ready.append(p)
        if len(ready) == len(learning(model)):
            for p in ready:
                reduce(p)
            ready.clear()

    return stage_2(model, make_optimizer, send)


@wrong("zero2", says="reduce-scatters began after backward")
def copies_sent_in_step(model, make_optimizer):
    waiting = {}

    def send(p, _):
        waiting[p], p.grad = p.grad, None

    def before_step(own, reduce):
        for p in own:
            p.grad = waiting.pop(p)
            reduce(p)

    return stage_2(model, make_optimizer, send, before_step)


@wrong("zero2", says="what is being sent is memory too")
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


@wrong("zero2", says="An all-reduce brings every rank all gradients")
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


# ---------------------------------------------------------------------------------------------
# shard_layer
# ---------------------------------------------------------------------------------------------


@wrong("shard_layer", says="the shard is a view, and keeps the whole layer in memory")
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


@wrong("shard_layer", says="this is the shard of rank 0")
def rank_0s_shard(layer):
    return one_layer(layer, cut=lambda full, n, rank: full.chunk(n)[0].clone())


@wrong("shard_layer", says="pass async_op=True and return the handle")
def a_gather_that_waits(layer):
    return one_layer(layer, wait=True)


@wrong("shard_layer", says="before the first gather the parameters still take memory")
def whole_until_the_first_release(layer):
    return one_layer(layer, rest=False)


@wrong("shard_layer", says="autograd has saved the old one for backward")
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


@wrong("shard_layer", says="after release the parameters still take memory")
def nothing_is_released(layer):
    shard, gather, release = one_layer(layer)
    return shard, gather, lambda: None


@wrong("shard_layer", says="a tuple of three is asked")
def only_the_shard(layer):
    return one_layer(layer)[0]


@wrong("shard_layer", says="make it an nn.Parameter")
def a_plain_tensor(layer):
    shard, gather, release = one_layer(layer)
    return shard.detach(), gather, release


# ---------------------------------------------------------------------------------------------
# zero3_step
# ---------------------------------------------------------------------------------------------


@wrong("zero3_step", says="layer 1 is not on its way yet")
def no_prefetch(units, x, y, loss):
    return layer_by_layer(units, x, y, loss, ahead=False)


@wrong("zero3_step", says="so nothing overlaps")
def prefetch_that_waits(units, x, y, loss):
    return layer_by_layer(units, x, y, loss, early=True)


@wrong("zero3_step", says="more than two layers are gathered at once")
def everything_first(units, x, y, loss):
    for work in [unit.gather() for unit in units]:
        work.wait()
    h = x
    for unit in units:
        h = unit.module(h)
    value = loss(h, y)
    value.backward()
    for unit in units:
        unit.release()
        unit.reduce()
    return value.detach()


@wrong("zero3_step", says="was gathered while it was there already")
def last_layer_stays_and_comes_again(units, x, y, loss):
    def release(unit):
        if unit is not units[-1]:
            unit.release()

    return layer_by_layer(units, x, y, loss, release=release)


@wrong("zero3_step", says="call unit.reduce() after its backward")
def gradients_stay(units, x, y, loss):
    return layer_by_layer(units, x, y, loss, reduce=lambda unit: None)


@wrong("zero3_step", says="at the end a layer is still gathered")
def first_layer_stays(units, x, y, loss):
    def back(unit):
        if unit is not units[0]:
            unit.release()

    return layer_by_layer(units, x, y, loss, back=back)


@wrong("zero3_step", says="return this rank's loss")
def nothing_returned(units, x, y, loss):
    return layer_by_layer(units, x, y, loss, result=lambda value: None)


# ---------------------------------------------------------------------------------------------
# zero_costs
# ---------------------------------------------------------------------------------------------

LIMITS = {0: 16, 1: 4, 2: 2, 3: 0}


def right_bytes(stage, n):
    return sum(part / n if stage > place else part for place, part in enumerate((12, 2, 2)))


def right_sent(stage, n):
    return (3 if stage == 3 else 2) * (n - 1) / n


@wrong("zero_costs", says="what is left with infinitely many ranks")
def the_limits(stage, n):
    return (LIMITS[stage] if n > 1 else 16), right_sent(stage, n)


@wrong("zero_costs", says="their sum does too: once, not twice")
def sixty_four_fold_on_eight(stage, n):
    return right_bytes(stage, n) / (n if stage == 3 else 1), right_sent(stage, n)


@wrong("zero_costs", says="mixed precision keeps an fp32 copy")
def no_fp32_copy(stage, n):
    parts = enumerate((8, 2, 2))
    return sum(part / n if stage > place else part for place, part in parts), right_sent(stage, n)


@wrong("zero_costs", says="the careless stage 1 sends")
def three_passes(stage, n):
    return right_bytes(stage, n), (3 if stage else 2) * (n - 1) / n


@wrong("zero_costs", says="stage 3 gathers the parameters twice")
def two_passes(stage, n):
    return right_bytes(stage, n), 2 * (n - 1) / n


@wrong("zero_costs", says="of every pass it sends (n-1)/n")
def own_part_sent_too(stage, n):
    return right_bytes(stage, n), 3 if stage == 3 else 2


@wrong("zero_costs", says="two numbers are asked")
def memory_alone(stage, n):
    return right_bytes(stage, n)


# ---------------------------------------------------------------------------------------------
# master_weights
# ---------------------------------------------------------------------------------------------


@wrong("master_weights", says="has not moved in 60 steps")
def bfloat16_alone(model, make_optimizer):
    return make_optimizer(learning(model)).step


@wrong("master_weights", says="has not moved in 60 steps")
def copies_made_anew(model, make_optimizer):
    return masters(model, make_optimizer, anew=True)


@wrong("master_weights", says="that makes 20 bytes a parameter of 16")
def fp32_gradients_stay(model, make_optimizer):
    return masters(model, make_optimizer, keep=True)


@wrong("master_weights", says="is no longer bfloat16")
def all_in_fp32(model, make_optimizer):
    model.float()
    return masters(model, make_optimizer)


@wrong("master_weights", says="does not step on fp32 copies")
def float64_copies(model, make_optimizer):
    own = learning(model)
    copies = [nn.Parameter(p.detach().double()) for p in own]
    optimizer = make_optimizer(copies)

    def step():
        for p, copy in zip(own, copies, strict=True):
            copy.grad = p.grad.double()
        optimizer.step()
        optimizer.zero_grad()
        for p, copy in zip(own, copies, strict=True):
            p.data.copy_(copy)

    return step


@wrong("master_weights", says="more fp32 copies than parameters that learn")
def copies_of_the_frozen(model, make_optimizer):
    return masters(
        model,
        make_optimizer,
        down=lambda p: None if p.grad is None else p.grad.float(),
        choose=lambda model: list(model.parameters()),
    )


@wrong("master_weights", says="return the function step itself")
def no_step(model, make_optimizer):
    masters(model, make_optimizer)


# ---------------------------------------------------------------------------------------------
# offload
# ---------------------------------------------------------------------------------------------


def over_the_bus(
    model,
    make_optimizer,
    to_host,
    to_device,
    down=lambda grad, to_host: to_host(grad).float(),
    up=lambda copy, to_device: to_device(copy.bfloat16()),
    free=True,
):
    def take(p):
        grad = down(p.grad, to_host)
        if free:
            p.grad = None
        return grad

    return masters(model, make_optimizer, take, lambda copy: up(copy, to_device))


@wrong("offload", says="nothing was copied to the host")
def all_on_the_device(model, make_optimizer, to_host, to_device):
    return masters(model, make_optimizer)


@wrong("offload", says="convert after the copy")
def fp32_gradients_down(model, make_optimizer, to_host, to_device):
    def down(grad, to_host):
        return to_host(grad.float())

    return over_the_bus(model, make_optimizer, to_host, to_device, down=down)


@wrong("offload", says="round before the copy")
def fp32_parameters_up(model, make_optimizer, to_host, to_device):
    def up(copy, to_device):
        return to_device(copy).bfloat16()

    return over_the_bus(model, make_optimizer, to_host, to_device, up=up)


@wrong("offload", says="nothing was copied to the device")
def written_from_the_host(model, make_optimizer, to_host, to_device):
    return over_the_bus(
        model, make_optimizer, to_host, to_device, up=lambda copy, to_device: copy.bfloat16()
    )


@wrong("offload", says="the gradients stay on the device")
def gradients_on_the_device(model, make_optimizer, to_host, to_device):
    return over_the_bus(model, make_optimizer, to_host, to_device, free=False)


@wrong("offload", says="only what learns has to cross")
def sent_twice(model, make_optimizer, to_host, to_device):
    def down(grad, to_host):
        to_host(grad.float())
        return to_host(grad).float()

    return over_the_bus(model, make_optimizer, to_host, to_device, down=down)


# ---------------------------------------------------------------------------------------------
# checkpointed
# ---------------------------------------------------------------------------------------------


@wrong("checkpointed", says="too many activations are kept")
def nothing_checkpointed(layers, x, k):
    for layer in layers:
        x = layer(x)
    return x


@wrong("checkpointed", says="too many activations are kept")
def every_layer_by_itself(layers, x, k):
    for layer in layers:
        x = checkpoint(layer, x, use_reentrant=False)
    return x


@wrong("checkpointed", says="fewer activations are kept than one for each segment")
def all_layers_as_one(layers, x, k):
    return checkpoint(nn.Sequential(*layers), x, use_reentrant=False)


@wrong("checkpointed", says="the values differ")
def the_rest_forgotten(layers, x, k):
    for start in range(0, len(layers) - k + 1, k):
        x = checkpoint(nn.Sequential(*layers[start : start + k]), x, use_reentrant=False)
    return x


@wrong("checkpointed", says="does not require grad")
def no_graph_at_all(layers, x, k):
    with torch.no_grad():
        return nn.Sequential(*layers)(x)


@wrong("checkpointed", says="got no gradient: backward must run its segment again")
def variable_of_the_loop(layers, x, k):
    """The function sees `segment` as it is when backward runs it again: the last one."""
    for start in range(0, len(layers), k):
        segment = nn.Sequential(*layers[start : start + k])
        x = Late.apply(x, lambda h: segment(h))
    return x


class Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, segment):
        ctx.segment = segment
        ctx.save_for_backward(x)
        return segment(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            ctx.segment(x).backward(gradient)
        return x.grad, None


@wrong("checkpointed", says="layers ran more often than twice")
def from_the_very_beginning(layers, x, k):
    """Keeps the input alone, and goes through all segments before it for each of them."""
    first = x

    class Again(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, start):
            ctx.start = start
            ctx.save_for_backward(x)
            return nn.Sequential(*layers[start : start + k])(x)

        @staticmethod
        def backward(ctx, gradient):
            with torch.no_grad():
                nn.Sequential(*layers[: ctx.start])(first)
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                nn.Sequential(*layers[ctx.start : ctx.start + k])(x).backward(gradient)
            return x.grad, None

    for start in range(0, len(layers), k):
        x = Again.apply(x, start)
    return x


# ---------------------------------------------------------------------------------------------
# clip_across_shards
# ---------------------------------------------------------------------------------------------


@wrong("clip_across_shards", says="each rank would scale by a factor of its own")
def local_norm(shards, replicated, max_norm):
    return clip(shards, replicated, max_norm, lambda parts, copies: parts + copies)


@wrong("clip_across_shards", says="counted once on every rank")
def copies_counted_by_all(shards, replicated, max_norm):
    return clip(shards, replicated, max_norm, lambda parts, copies: summed(parts + copies))


@wrong("clip_across_shards", says="these are the ranks' norms, added")
def norms_added(shards, replicated, max_norm):
    def square(parts, copies):
        return summed((parts + copies).sqrt()) ** 2

    return clip(shards, replicated, max_norm, square)


@wrong("clip_across_shards", says="this is an average over ranks")
def squares_averaged(shards, replicated, max_norm):
    def square(parts, copies):
        return summed(parts + copies) / dist.get_world_size()

    return clip(shards, replicated, max_norm, square)


@wrong("clip_across_shards", says="the replicated gradients are left out")
def copies_left_out(shards, replicated, max_norm):
    return clip(shards, replicated, max_norm, lambda parts, copies: summed(parts))


@wrong("clip_across_shards", says="clipping never makes them longer")
def scaled_up(shards, replicated, max_norm):
    return clip(
        shards,
        replicated,
        max_norm,
        lambda parts, copies: summed(parts) + copies,
        factor=lambda norm, most: most / norm,
    )


@wrong("clip_across_shards", says="also one with empty shards or without any gradient")
def empty_ranks_leave(shards, replicated, max_norm):
    if sum(p.grad.numel() for p in shards if p.grad is not None) == 0:
        return 0.0
    return clip(shards, replicated, max_norm, lambda parts, copies: summed(parts) + copies)


@wrong("clip_across_shards", says="whole gradients went over the network")
def gradients_gathered(shards, replicated, max_norm):
    n, rank = dist.get_world_size(), dist.get_rank()
    everyone = torch.zeros(n, 200, dtype=torch.float64)
    mine = torch.cat([p.grad.flatten() for p in shards if p.grad is not None] or [torch.zeros(0)])
    everyone[rank, : mine.numel()] = mine
    dist.all_reduce(everyone)
    return clip(
        shards, replicated, max_norm, lambda parts, copies: (everyone**2).sum().view(1) + copies
    )
