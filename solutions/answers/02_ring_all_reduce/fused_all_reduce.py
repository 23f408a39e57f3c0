"""Known answers to fused_all_reduce."""

import itertools
from collections import deque

import torch
import torch.distributed as dist
import torch.distributed.nn

from course_lib.checks.known_answers import right, wrong


@right
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


def reduce_groups(groups):
    for group in groups:
        buffer = torch.cat([t.reshape(-1) for t in group])
        dist.all_reduce(buffer)
        parts = buffer.split([t.numel() for t in group])
        for tensor, part in zip(group, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))


def packed(tensors, buffer_bytes, size=lambda t: t.nbytes, same_dtype=True):
    groups, filled = [], 0
    for t in tensors:
        new_kind = same_dtype and groups and groups[-1][-1].dtype != t.dtype
        if not groups or new_kind or filled + size(t) > buffer_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(t)
        filled += size(t)
    return groups


@wrong(says="3 times where 1 are enough")
def not_fused(tensors, buffer_bytes):
    for tensor in tensors:
        dist.all_reduce(tensor)
    return tensors


@wrong(says="a buffer is larger than buffer_bytes")
def one_buffer_for_everything(tensors, buffer_bytes):
    reduce_groups([tensors])
    return tensors


@wrong(says="tensor 0 of the list: exactly half the reference")
def fused_mean(tensors, buffer_bytes):
    reduce_groups(packed(tensors, buffer_bytes))
    for tensor in tensors:
        tensor /= dist.get_world_size()
    return tensors


@wrong(says="tensor 4 of the list: this is still the rank's own input")
def last_buffer_forgotten(tensors, buffer_bytes):
    groups = packed(tensors, buffer_bytes)
    reduce_groups(groups[:-1] or groups)
    return tensors


@wrong(says="a buffer is larger than buffer_bytes")
def counts_elements_for_bytes(tensors, buffer_bytes):
    reduce_groups(packed(tensors, buffer_bytes, size=lambda t: t.numel()))
    return tensors


@wrong(says="right to the digits that float64 has")
def mixes_dtypes(tensors, buffer_bytes):
    reduce_groups(packed(tensors, buffer_bytes, same_dtype=False))
    return tensors


@wrong(says="your function returned nothing: `return tensors`")
def fused_without_return(tensors, buffer_bytes):
    reduce_groups(packed(tensors, buffer_bytes))


@wrong(says="this one came transposed")
def flattens_by_view(tensors, buffer_bytes):
    reduce_groups([[t.view(-1) for t in group] for group in packed(tensors, buffer_bytes)])
    return tensors


@wrong(says="is a buffer sent with unused space")
def sends_the_unused_space(tensors, buffer_bytes):
    for group in packed(tensors, buffer_bytes):
        flat = torch.cat([t.reshape(-1) for t in group])
        buffer = flat.new_zeros(max(flat.numel(), buffer_bytes // flat.element_size()))
        buffer[: flat.numel()] = flat
        dist.all_reduce(buffer)
        for t, part in zip(group, buffer[: flat.numel()].split([t.numel() for t in group])):
            t.copy_(part.view(t.shape))
    return tensors


@wrong(says="this is rank 1's input")
def rank_0_brings_nothing(tensors, buffer_bytes):
    if dist.get_rank() == 0:
        for tensor in tensors:
            tensor.zero_()
    reduce_groups(packed(tensors, buffer_bytes))
    return tensors


@right
def packs_begin_before_anything_is_sent(tensors, buffer_bytes):
    """The borders of the packs first, then one buffer after the other."""
    packs, begin = [], 0
    for i in range(1, len(tensors) + 1):
        pack = tensors[begin : i + 1]
        kinds, size = {t.dtype for t in pack}, sum(t.numel() * t.element_size() for t in pack)
        if i == len(tensors) or len(kinds) > 1 or size > buffer_bytes:
            packs.append(tensors[begin:i])
            begin = i
    for pack in packs:
        buffer = torch.empty(sum(t.numel() for t in pack), dtype=pack[0].dtype)
        torch.cat([t.reshape(-1) for t in pack], out=buffer)
        dist.all_reduce(buffer, op=dist.ReduceOp.SUM)
        at = 0
        for t in pack:
            t[...] = buffer[at : at + t.numel()].view_as(t)
            at += t.numel()
    return tensors


@right
def all_under_way_at_once(tensors, buffer_bytes):
    """Every buffer leaves before the first one is waited for."""
    under_way = []
    for pack in packed(tensors, buffer_bytes):
        buffer = torch.cat([t.flatten() for t in pack])
        under_way.append((pack, buffer, dist.all_reduce(buffer, async_op=True)))
    for pack, buffer, work in under_way:
        work.wait()
        for t, part in zip(pack, buffer.split(list(map(torch.numel, pack))), strict=True):
            t.copy_(part.reshape(t.shape))
    return tensors


@right
def a_lone_tensor_goes_as_it_is(tensors, buffer_bytes):
    for pack in packed(tensors, buffer_bytes):
        if len(pack) == 1 and pack[0].is_contiguous():
            dist.all_reduce(pack[0])
            continue
        buffer = torch.cat([t.contiguous().view(-1) for t in pack])
        dist.all_reduce(buffer)
        first = 0
        for t in pack:
            t.copy_(buffer.narrow(0, first, t.numel()).view(t.shape))
            first += t.numel()
    return tensors


@right
def by_a_generator_of_packs(tensors, buffer_bytes):
    def packs():
        pack = deque()
        for t in tensors:
            if pack and (
                t.dtype is not pack[0].dtype or sum(p.nbytes for p in [*pack, t]) > buffer_bytes
            ):
                yield list(pack)
                pack.clear()
            pack.append(t)
        if pack:
            yield list(pack)

    for pack in packs():
        flat = torch.hstack([t.ravel() for t in pack])
        dist.all_reduce(flat)
        offsets = itertools.accumulate((t.numel() for t in pack), initial=0)
        for t, at in zip(pack, offsets, strict=False):
            t.copy_(flat[at : at + t.numel()].reshape(t.shape))
    return tensors
