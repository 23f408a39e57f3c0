"""Known answers to buckets_by_ready_time."""

import math

import numpy
import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


@right
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


@right
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


@right
def buckets_by_objects(ready, sizes, bucket_bytes):
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, ready)
    latest = [
        max(math.inf if t is None else t for t in times) for times in zip(*every, strict=True)
    ]
    return by_times(latest, sizes, bucket_bytes)


@right
def buckets_by_reduce_and_broadcast(ready, sizes, bucket_bytes):
    times = torch.tensor([math.inf if t is None else t for t in ready])
    dist.reduce(times, 0, op=dist.ReduceOp.MAX)
    dist.broadcast(times, 0)
    return [numpy.array(bucket) for bucket in by_times(times.tolist(), sizes, bucket_bytes)]


def agreed(ready, op=dist.ReduceOp.MAX, never=math.inf):
    times = torch.tensor([never if t is None else t for t in ready], dtype=torch.float64)
    dist.all_reduce(times, op=op)
    return times.tolist()


def packed(order, sizes, bucket_bytes):
    buckets = []
    for i in order:
        if not buckets or sum(sizes[j] for j in buckets[-1]) + sizes[i] > bucket_bytes:
            buckets.append([])
        buckets[-1].append(i)
    return buckets


def by_times(times, sizes, bucket_bytes):
    return packed(sorted(range(len(sizes)), key=times.__getitem__), sizes, bucket_bytes)


@wrong(says="each rank has clocks of its own")
def by_the_ranks_own_clock(ready, sizes, bucket_bytes):
    return by_times([math.inf if t is None else t for t in ready], sizes, bucket_bytes)


@wrong(says="this is the order of rank 0's clock")
def by_rank_0s_clock(ready, sizes, bucket_bytes):
    times = torch.tensor([math.inf if t is None else t for t in ready], dtype=torch.float64)
    dist.broadcast(times, src=0)
    return by_times(times.tolist(), sizes, bucket_bytes)


@wrong(says="this is the order by the earliest rank")
def by_the_earliest_rank(ready, sizes, bucket_bytes):
    return by_times(agreed(ready, dist.ReduceOp.MIN), sizes, bucket_bytes)


@wrong(says="this is the order by the average over ranks")
def by_the_average(ready, sizes, bucket_bytes):
    return by_times(agreed(ready, dist.ReduceOp.SUM), sizes, bucket_bytes)


@wrong(says="this is the reverse of the list")
def reverse_of_the_list(ready, sizes, bucket_bytes):
    agreed(ready)
    return packed(list(reversed(range(len(sizes)))), sizes, bucket_bytes)


@wrong(says="the order is reversed")
def latest_first(ready, sizes, bucket_bytes):
    times = agreed(ready)
    return packed(sorted(range(len(sizes)), key=lambda i: -times[i]), sizes, bucket_bytes)


@wrong(says="never ready on some rank does not mean never ready")
def without_what_somebody_lacks(ready, sizes, bucket_bytes):
    times = agreed(ready)
    order = sorted((i for i in range(len(sizes)) if times[i] < math.inf), key=times.__getitem__)
    return packed(order, sizes, bucket_bytes)


@wrong(says="a parameter that a rank never had counts as early here")
def never_counts_as_zero(ready, sizes, bucket_bytes):
    return by_times(agreed(ready, never=-1.0), sizes, bucket_bytes)


@wrong(says="a bucket has room for the next parameter")
def a_bucket_for_each(ready, sizes, bucket_bytes):
    return by_times(agreed(ready), sizes, 1)


@wrong(says="a bucket of several parameters is larger than bucket_bytes")
def full_and_one_more(ready, sizes, bucket_bytes):
    times, buckets, filled = agreed(ready), [], bucket_bytes
    for i in sorted(range(len(sizes)), key=times.__getitem__):
        if filled >= bucket_bytes:
            buckets.append([])
            filled = 0
        buckets[-1].append(i)
        filled += sizes[i] + 1
    return buckets


@wrong(says="these are tensors: tolist() makes numbers")
def buckets_of_tensors(ready, sizes, bucket_bytes):
    return [list(torch.tensor(b)) for b in by_times(agreed(ready), sizes, bucket_bytes)]


@right
def buckets_of_rank_0(ready, sizes, bucket_bytes):
    """Rank 0 hears all times, decides, and tells the others the order."""
    n, me = dist.get_world_size(), dist.get_rank()
    mine = torch.tensor([1e300 if t is None else t for t in ready], dtype=torch.float64)
    order = torch.zeros(len(sizes), dtype=torch.int64)
    if me == 0:
        latest, other = mine.clone(), torch.empty_like(mine)
        for source in range(1, n):
            dist.recv(other, source)
            latest = torch.maximum(latest, other)
        order = latest.argsort(stable=True)
    else:
        dist.send(mine, 0)
    dist.broadcast(order, 0)
    buckets, room = [], -1
    for i in order.tolist():
        if sizes[i] > room:
            buckets.append([])
            room = bucket_bytes
        buckets[-1].append(i)
        room -= sizes[i]
    return buckets
