"""Right answers to notebook 02, written independently of the solutions and of the techniques."""

import math

import torch
import torch.distributed as dist


def gather_broadcast_all_reduce(tensor):
    n = dist.get_world_size()
    if dist.get_rank() == 0:
        parts = [torch.empty_like(tensor) for _ in range(n - 1)]
        for work in [dist.irecv(part, src) for src, part in enumerate(parts, 1)]:
            work.wait()
        for part in parts:
            tensor.add_(part)
        for work in [dist.isend(tensor, dst) for dst in range(1, n)]:
            work.wait()
    else:
        dist.send(tensor, 0)
        dist.recv(tensor, 0)
    return tensor


def _swap(outgoing, incoming, to, source, group):
    operations = [
        dist.P2POp(dist.isend, outgoing, to, group),
        dist.P2POp(dist.irecv, incoming, source, group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


def _ring(group):
    group = group or dist.group.WORLD
    members, me = dist.get_process_group_ranks(group), dist.get_rank(group)
    return members, me, members[me - 1], members[(me + 1) % len(members)]


def ring_reduce_scatter(tensor, group=None):
    """One accumulator travels: the chunk that ends here started on the right neighbour."""
    members, me, left, right = _ring(group)
    n = len(members)
    chunks = tensor.reshape(n, -1)
    moving = chunks[me - 1].clone()
    for step in range(2, n + 1):
        arriving = torch.empty_like(moving)
        _swap(moving, arriving, right, left, group)
        moving = arriving + chunks[(me - step) % n]
    return moving


def ring_all_gather(chunk, group=None):
    members, me, left, right = _ring(group)
    parts = {me: chunk.clone()}
    for step in range(1, len(members)):
        arriving = torch.empty_like(chunk)
        _swap(parts[(me - step + 1) % len(members)], arriving, right, left, group)
        parts[(me - step) % len(members)] = arriving
    return torch.cat([parts[i] for i in range(len(members))])


def ring_all_reduce(tensor, group=None):
    n = dist.get_world_size(group)
    flat = torch.nn.functional.pad(tensor.reshape(-1), (0, -tensor.numel() % n))
    whole = ring_all_gather(ring_reduce_scatter(flat, group), group)
    return tensor.copy_(whole[: tensor.numel()].reshape(tensor.shape))


def ring_all_reduce_uneven(tensor, group=None):
    """Without padding: chunks as torch.tensor_split cuts them, and a ring that turns left."""
    members, me, left, right = _ring(group)
    n = len(members)
    chunks = tensor.view(-1).tensor_split(n)
    for step in range(n - 1):
        outgoing, kept = chunks[(me + step) % n], chunks[(me + step + 1) % n]
        arriving = torch.empty_like(kept)
        _swap(outgoing, arriving, left, right, group)
        kept += arriving
    for step in range(n - 1):
        outgoing, arriving = chunks[(me + step - 1) % n], chunks[(me + step) % n]
        _swap(outgoing, arriving, left, right, group)
    return tensor


def fit_alpha_beta(sizes, times):
    """Normal equations of the relative errors."""
    rows = [(1 / t, s / t) for s, t in zip(sizes, times, strict=True)]
    aa, ab, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(r[i] for r in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    return (a * bb - b * ab) / determinant, (aa * b - ab * a) / determinant


def crossover_bytes(n, alpha, beta):
    if n == 1:
        return 0.0
    levels = math.ceil(math.log2(n))
    return alpha / beta * (n - 1 - levels) / (levels - 1 + 1 / n)


def fused_all_reduce(tensors, buffer_bytes):
    waiting: list[torch.Tensor] = []

    def flush():
        if not waiting:
            return
        buffer = torch.cat([t.flatten() for t in waiting])
        dist.all_reduce(buffer)
        for t in waiting:
            t.copy_(buffer[: t.numel()].reshape(t.shape))
            buffer = buffer[t.numel() :]
        waiting.clear()

    for t in tensors:
        full = sum(w.nbytes for w in waiting) + t.nbytes > buffer_bytes
        if full or (waiting and waiting[-1].dtype != t.dtype):
            flush()
        waiting.append(t)
    flush()
    return tensors


def average_gradients_by_hooks(model):
    for value in model.state_dict().values():
        dist.broadcast(value, 0)
    works = {}

    def reduce(parameter):
        works[parameter] = dist.all_reduce(parameter.grad, async_op=True)

    for parameter in filter(lambda p: p.requires_grad, model.parameters()):
        parameter.register_post_accumulate_grad_hook(reduce)

    def synchronize():
        for parameter, work in works.items():
            work.wait()
            parameter.grad.div_(dist.get_world_size())
        works.clear()

    return synchronize


def halving_doubling_all_reduce(tensor, group=None):
    """Nearest partner first: the ranges are those of bit-reversed ranks, which nobody asks."""
    members, me, _, _ = _ring(group)
    n = len(members)
    flat = torch.nn.functional.pad(tensor.reshape(-1), (0, -tensor.numel() % n))
    held, levels = flat, []
    for k in range(n.bit_length() - 1):
        partner = members[me ^ 2**k]
        keep, give = held.chunk(2) if not me & 2**k else held.chunk(2)[::-1]
        arriving = torch.empty_like(keep)
        _swap(give, arriving, partner, partner, group)
        keep += arriving
        levels.append((partner, keep, give))
        held = keep
    for partner, keep, give in reversed(levels):
        _swap(keep, give, partner, partner, group)
    return tensor.copy_(flat[: tensor.numel()].reshape(tensor.shape))


ANSWERS = {
    "gather_broadcast_all_reduce": [gather_broadcast_all_reduce],
    "ring_reduce_scatter": [ring_reduce_scatter],
    "ring_all_gather": [ring_all_gather],
    "ring_all_reduce": [ring_all_reduce, ring_all_reduce_uneven],
    "fit_alpha_beta": [fit_alpha_beta],
    "crossover_bytes": [crossover_bytes],
    "fused_all_reduce": [fused_all_reduce],
    "average_gradients_by_hooks": [average_gradients_by_hooks],
    "halving_doubling_all_reduce": [halving_doubling_all_reduce],
}
