"""Known answers to fused_all_reduce."""

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


@wrong(says="in a wider dtype?")
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
