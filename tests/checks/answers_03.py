"""Right answers to notebook 03, written independently of the solutions and of the techniques."""

import math

import torch
import torch.distributed as dist
from torch import nn


def start_equal(model):
    for module in model.modules():
        for holder in (module._parameters, module._buffers):
            for tensor in holder.values():
                if tensor is not None and not getattr(tensor, "_sent", False):
                    dist.broadcast(tensor.data, 0)
                    tensor._sent = True  # a shared weight is in two modules


def start_equal_flat(model):
    """One broadcast for each dtype."""
    tensors = [t.detach() for t in (*model.parameters(), *model.buffers())]
    for dtype in sorted({t.dtype for t in tensors}, key=str):
        alike = [t for t in tensors if t.dtype == dtype]
        flat = torch.cat([t.reshape(-1) for t in alike])
        dist.broadcast(flat, src=0)
        torch._foreach_copy_(
            alike,
            [
                p.view_as(t)
                for p, t in zip(flat.split([t.numel() for t in alike]), alike, strict=True)
            ],
        )


start_equal_flat.__name__ = "start_equal"


def big_batch_gradient(model, loss, inputs, targets):
    """Sums first, one division at the end; all in one buffer."""
    rows, mean = len(inputs), torch.zeros(())
    if rows:
        mean = loss(model(inputs), targets)
        mean.backward()
    trainable = [p for p in model.parameters() if p.requires_grad]
    own = [torch.zeros_like(p) if p.grad is None else p.grad * rows for p in trainable]
    like = trainable[0]
    numbers = [float(mean) * rows if rows else 0.0, float(rows)]
    flat = torch.cat([*(g.flatten() for g in own), torch.tensor(numbers, dtype=like.dtype)])
    dist.all_reduce(flat)
    *grads, numbers = flat.split([*(p.numel() for p in trainable), 2])
    for p, g in zip(trainable, grads, strict=True):
        p.grad = (g / numbers[1]).view_as(p)
    return (numbers[0] / numbers[1]).item()


def big_batch_gradient_weighted(model, loss, inputs, targets):
    """The weights rows * n / total, then an average as DDP makes it."""
    n = dist.get_world_size()
    counts = [torch.zeros(1, dtype=torch.int64) for _ in range(n)]
    dist.all_gather(counts, torch.tensor([len(inputs)]))
    share = len(inputs) * n / sum(int(c) for c in counts)
    total = torch.zeros((), dtype=torch.float64)
    if len(inputs):
        value = share * loss(model(inputs), targets)
        value.backward()
        total = value.detach().clone()
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad
            dist.all_reduce(p.grad)
            p.grad /= n
    dist.all_reduce(total)
    return total / n


big_batch_gradient_weighted.__name__ = "big_batch_gradient"


def shard_indices(samples, rank, world_size, epoch, seed):
    """Consecutive parts of a shuffled order."""
    import random

    order = list(range(samples))
    random.Random(seed * 1_000_003 + epoch).shuffle(order)
    ends = [samples * r // world_size for r in range(world_size + 1)]
    return order[ends[rank] : ends[rank + 1]]


def shard_indices_tensor(samples, rank, world_size, epoch, seed):
    generator = torch.Generator()
    generator.manual_seed(seed + epoch)
    return torch.randperm(samples, generator=generator).tensor_split(world_size)[rank]


shard_indices_tensor.__name__ = "shard_indices"


def average_in_buckets(model, bucket_bytes):
    """Flat buffers that live as long as the model, with .grad as views of them."""
    n = dist.get_world_size()
    buckets, works = [], []
    for p in [p for p in model.parameters() if p.requires_grad][::-1]:
        if not buckets or buckets[-1]["bytes"] + p.nbytes > bucket_bytes:
            buckets.append({"parameters": [], "bytes": 0, "ready": 0})
        buckets[-1]["parameters"].append(p)
        buckets[-1]["bytes"] += p.nbytes

    def send(bucket):
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket["parameters"]]
        bucket["flat"] = torch.cat([part.reshape(-1) / n for part in parts])
        works.append(dist.all_reduce(bucket["flat"], async_op=True))

    def hook_of(bucket):
        def hook(_):
            bucket["ready"] += 1
            while len(works) < len(buckets):
                next_one = buckets[len(works)]
                if next_one["ready"] < len(next_one["parameters"]):
                    break
                send(next_one)

        return hook

    for bucket in buckets:
        for p in bucket["parameters"]:
            p.register_post_accumulate_grad_hook(hook_of(bucket))

    def synchronize():
        for bucket in buckets[len(works) :]:
            send(bucket)
        for bucket, work in zip(buckets, works, strict=True):
            work.wait()
            offset = 0
            for p in bucket["parameters"]:
                p.grad = bucket["flat"][offset : offset + p.numel()].view_as(p)
                offset += p.numel()
            bucket["ready"] = 0
        works.clear()

    return synchronize


def accumulate(ddp, loss, microbatches, max_norm):
    """The norm by hand."""
    with ddp.no_sync():
        for x, y in microbatches[:-1]:
            loss(ddp(x), y).backward()
    x, y = microbatches[-1]
    loss(ddp(x), y).backward()
    grads = [p.grad for p in ddp.parameters() if p.grad is not None]
    for grad in grads:
        grad /= len(microbatches)
    norm = math.sqrt(sum(float(grad.square().sum()) for grad in grads))
    for grad in grads:
        grad *= min(1.0, max_norm / norm)
    return norm


def accumulate_by_turns(ddp, loss, microbatches, max_norm):
    """A context for every microbatch, as frameworks write it."""
    from contextlib import nullcontext

    for i, (x, y) in enumerate(microbatches, 1):
        with nullcontext() if i == len(microbatches) else ddp.no_sync():
            (loss(ddp(x), y) / len(microbatches)).backward()
    return nn.utils.clip_grad_norm_(ddp.module.parameters(), max_norm)


accumulate_by_turns.__name__ = "accumulate"


def scaling_efficiency(forward, backward, ready, sizes, seconds):
    """Backwards in time: the step cannot be shorter than any bucket and all behind it."""
    tail, longest = 0.0, backward
    for moment, size in zip(reversed(ready), reversed(sizes), strict=True):
        tail += seconds(size)
        longest = max(longest, moment + tail)
    return torch.tensor((forward + backward) / (forward + longest), dtype=torch.float64)


def learning_rate(step, base_rate, base_batch, batch, warmup_steps):
    k = batch / base_batch
    share = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    return base_rate * (1 + (k - 1) * share)


def buckets_by_ready_time(ready, sizes, bucket_bytes):
    """Times gathered; ties by index."""
    own = torch.tensor([math.inf if t is None else t for t in ready], dtype=torch.float64)
    times = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(times, own)
    latest = torch.stack(times).max(0).values
    buckets, room = [], 0
    for i in latest.argsort(stable=True).tolist():
        if sizes[i] > room or not buckets:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(i)
        room -= sizes[i]
    return buckets


def buckets_in_tuples(ready, sizes, bucket_bytes):
    """All-reduce of the times, one time for all equal ones, and tuples."""
    times = torch.tensor([1e30 if t is None else t for t in ready], dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    pairs = sorted(zip(times.tolist(), range(len(sizes)), strict=True))
    buckets = ()
    for _, i in pairs:
        if buckets and sum(sizes[j] for j in buckets[-1]) + sizes[i] <= bucket_bytes:
            buckets = (*buckets[:-1], (*buckets[-1], i))
        else:
            buckets = (*buckets, (i,))
    return buckets


buckets_in_tuples.__name__ = "buckets_by_ready_time"

ANSWERS = {
    "start_equal": [start_equal, start_equal_flat],
    "big_batch_gradient": [big_batch_gradient, big_batch_gradient_weighted],
    "shard_indices": [shard_indices, shard_indices_tensor],
    "average_in_buckets": [average_in_buckets],
    "accumulate": [accumulate, accumulate_by_turns],
    "scaling_efficiency": [scaling_efficiency],
    "learning_rate": [learning_rate],
    "buckets_by_ready_time": [buckets_by_ready_time, buckets_in_tuples],
}
