"""Right answers to notebook 06, written independently of the solutions and of the techniques."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint


def flatten(tensors, n):
    flat = torch.cat([t.detach().flatten() for t in tensors])
    return nn.functional.pad(flat, (0, -flat.numel() % n))


def unflatten(flat, tensors):
    with torch.no_grad():
        for t in tensors:
            t.copy_(flat[: t.numel()].view_as(t))
            flat = flat[t.numel() :]


def held_bytes(tensors):
    seen, total = set(), 0
    for t in tensors:
        storage = None if t is None else t.untyped_storage()
        if storage is not None and storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            total += storage.size()
    return total


def zero1(model, make_optimizer):
    for p in model.parameters():
        dist.broadcast(p.data, 0)
    n, rank = dist.get_world_size(), dist.get_rank()
    own = [p for p in model.parameters() if p.requires_grad]
    shard = nn.Parameter(flatten(own, n).chunk(n)[rank].clone())
    optimizer = make_optimizer([shard])

    def step():
        flat = flatten([p.grad for p in own], n)
        shard.grad = torch.empty_like(shard)
        dist.reduce_scatter(shard.grad, list(flat.chunk(n)))
        shard.grad /= n
        optimizer.step()
        dist.all_gather(list(flat.chunk(n)), shard.detach())
        unflatten(flat, own)

    return step


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
        for flat in flats:
            for owner, part in enumerate(flat.tensor_split(n)):
                if part.numel():
                    dist.broadcast(part, owner)

    return step


def zero2(model, make_optimizer):
    n, rank = dist.get_world_size(), dist.get_rank()
    own = [p for p in model.parameters() if p.requires_grad]
    shards = {p: nn.Parameter(flatten([p], n).chunk(n)[rank].clone()) for p in own}
    optimizer = make_optimizer(list(shards.values()))

    def send(p):
        flat, p.grad = flatten([p.grad], n), None
        mine = torch.empty_like(shards[p])
        dist.reduce_scatter(mine, list(flat.chunk(n)))
        shards[p].grad = mine / n

    for p in own:
        p.register_post_accumulate_grad_hook(send)

    def step():
        optimizer.step()
        for p, shard in shards.items():
            flat = flatten([p], n)
            dist.all_gather(list(flat.chunk(n)), shard.detach())
            unflatten(flat, [p])

    return step


def zero2_one_ahead(model, make_optimizer):
    """Asynchronous, with one reduce-scatter under way at a time; an optimizer for each shard."""
    n, rank = dist.get_world_size(), dist.get_rank()
    own = [p for p in model.parameters() if p.requires_grad]
    shards = [nn.Parameter(flatten([p], n).chunk(n)[rank].clone()) for p in own]
    optimizers = [make_optimizer([shard]) for shard in shards]
    waiting = []

    def land():
        while waiting:
            work, shard, _ = waiting.pop()
            work.wait()
            shard.grad /= n

    def hook_for(shard):
        def hook(p):
            flat = flatten([p.grad], n)
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
        flat = torch.cat(shards).detach()
        whole = flat.new_empty(n, flat.numel())
        dist.all_gather(list(whole), flat)
        parts = whole.split([s.numel() for s in shards], dim=1)
        for p, part in zip(own, parts, strict=True):
            p.data.copy_(part.reshape(-1)[: p.numel()].view_as(p))

    return step


def shard_layer(layer):
    n, rank = dist.get_world_size(), dist.get_rank()
    parameters = list(layer.parameters())
    full = flatten(parameters, n)
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


def zero3_step(units, x, y, loss):
    """Like the pipeline: the graph is cut between layers."""
    kept = []
    coming = units[0].gather()
    for unit, following in zip(units, [*units[1:], None], strict=True):
        coming.wait()
        coming = following and following.gather()
        x = x.detach().requires_grad_(bool(kept))
        kept.append((x, unit.module(x)))
        x = kept[-1][1]
        unit.release()
    x = x.detach().requires_grad_()
    value = loss(x, y)
    value.backward()
    coming = units[-1].gather()
    for unit, following in zip(units[::-1], [*units[-2::-1], None], strict=True):
        coming.wait()
        coming = following and following.gather()
        gradient = x.grad
        x, output = kept.pop()
        output.backward(gradient)
        unit.release()
        unit.reduce()
    return value.detach()


def zero3_step_by_hooks(units, x, y, loss):
    """One graph, with hooks on the layers' outputs, as FSDP does; the last layer just stays."""
    last, coming = len(units) - 1, {}

    def before_backward(i):
        def hook(_):
            if i + 1 <= last:
                units[i + 1].release()
                units[i + 1].reduce()
            if i < last:
                coming.pop(i).wait()
            if i > 0:
                coming[i - 1] = units[i - 1].gather()

        return hook

    coming[0] = units[0].gather()
    for i, unit in enumerate(units):
        coming.pop(i).wait()
        if i < last:
            coming[i + 1] = units[i + 1].gather()
        x = unit.module(x)
        x.register_hook(before_backward(i))
        if i < last:
            unit.release()
    value = loss(x, y)
    value.backward()
    units[0].release()
    units[0].reduce()
    return value.detach()


def zero_costs(stage, n):
    divided = {0: 0, 1: 12, 2: 14, 3: 16}[stage]
    return 16 - divided * (n - 1) / n, (2 + (stage == 3)) * (1 - 1 / n)


def master_weights(model, make_optimizer):
    masters = {p: nn.Parameter(p.detach().float()) for p in model.parameters() if p.requires_grad}
    optimizer = make_optimizer(masters.values())

    def step():
        for p, master in masters.items():
            master.grad = p.grad.to(torch.float32)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for p, master in masters.items():
            p.data.copy_(master.data)

    return step


def master_weights_flat(model, make_optimizer):
    """All copies in one tensor."""
    own = [p for p in model.parameters() if p.requires_grad]
    flat = nn.Parameter(torch.cat([p.detach().float().view(-1) for p in own]))
    optimizer = make_optimizer([flat])

    def step():
        flat.grad = torch.cat([p.grad.view(-1) for p in own]).float()
        optimizer.step()
        flat.grad = None
        unflatten(flat, own)

    return step


def offload(model, make_optimizer, to_host, to_device):
    own = [p for p in model.parameters() if p.requires_grad]
    masters = [nn.Parameter(to_host(p).float()) for p in own]
    optimizer = make_optimizer(masters)

    def step():
        for p, master in zip(own, masters, strict=True):
            master.grad = to_host(p.grad).float()
            p.grad = None
        optimizer.step()
        for p, master in zip(own, masters, strict=True):
            master.grad = None
            p.data.copy_(to_device(master.detach().bfloat16()))

    return step


def offload_flat(model, make_optimizer, to_host, to_device):
    """One message each way."""
    own = [p for p in model.parameters() if p.requires_grad]
    master = nn.Parameter(to_host(torch.cat([p.detach().view(-1) for p in own])).float())
    optimizer = make_optimizer([master])

    def step():
        master.grad = to_host(torch.cat([p.grad.view(-1) for p in own])).float()
        for p in own:
            p.grad = None
        optimizer.step()
        master.grad = None
        unflatten(to_device(master.detach().to(torch.bfloat16)), own)

    return step


def checkpointed(layers, x, k):
    for start in range(0, len(layers), k):
        x = checkpoint(nn.Sequential(*layers[start : start + k]), x, use_reentrant=False)
    return x


def checkpointed_by_hand(layers, x, k):
    class Segment(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, segment):
            ctx.segment = segment
            ctx.save_for_backward(x)
            return segment(x)

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            x = x.detach().requires_grad_()
            with torch.enable_grad():
                output = ctx.segment(x)
            output.backward(gradient)
            return x.grad, None

    for start in range(0, len(layers), k):
        x = Segment.apply(x, nn.Sequential(*layers[start : start + k]))
    return x


def clip_across_shards(shards, replicated, max_norm):
    square = torch.zeros(1, dtype=torch.float64)
    for p in shards:
        if p.grad is not None:
            square += p.grad.pow(2).sum()
    dist.all_reduce(square)
    for p in replicated:
        square += p.grad.pow(2).sum()
    norm = float(square) ** 0.5
    for p in [*shards, *replicated]:
        if p.grad is not None:
            p.grad *= min(1.0, max_norm / norm)
    return norm


def clip_across_shards_by_torch(shards, replicated, max_norm):
    """Every rank counts an n-th of what is replicated; torch does the rest."""
    n = dist.get_world_size()
    own = torch.nn.utils.get_total_norm([p.grad for p in shards if p.grad is not None])
    same = torch.nn.utils.get_total_norm([p.grad for p in replicated])
    square = (own**2 + same**2 / n).double()
    dist.all_reduce(square)
    torch.nn.utils.clip_grads_with_norm_([*shards, *replicated], max_norm, square.sqrt())
    return square.sqrt()


ANSWERS = {
    "held_bytes": [held_bytes],
    "zero1": [zero1, zero1_uneven],
    "zero2": [zero2, zero2_one_ahead],
    "shard_layer": [shard_layer],
    "zero3_step": [zero3_step, zero3_step_by_hooks],
    "zero_costs": [zero_costs],
    "master_weights": [master_weights, master_weights_flat],
    "offload": [offload, offload_flat],
    "checkpointed": [checkpointed, checkpointed_by_hand],
    "clip_across_shards": [clip_across_shards, clip_across_shards_by_torch],
}
