"""What answers to notebook 09 share."""

import torch
import torch.distributed as dist

INF = float("inf")


def partial(q, k, v, visible, scale=None):
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = (q @ k.mT * scale).masked_fill(~visible, -INF)
    lse = scores.logsumexp(-1)
    return (scores - lse.nan_to_num(neginf=0.0)[..., None]).exp() @ v, lse


def merge(out_a, lse_a, out_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    finite = lse.nan_to_num(neginf=0.0)
    a, b = ((each - finite).exp()[..., None] for each in (lse_a, lse_b))
    return out_a * a + out_b * b, lse


def exchange(tensors):
    """To the next rank, from the one before."""
    n, rank = dist.get_world_size(), dist.get_rank()
    if n == 1:
        return list(tensors)
    sending = [dist.isend(tensor.contiguous(), dst=(rank + 1) % n) for tensor in tensors]
    arrived = [torch.empty_like(tensor.contiguous()) for tensor in tensors]
    for tensor in arrived:
        dist.recv(tensor, src=(rank - 1) % n)
    for work in sending:
        work.wait()
    return arrived


def blocks(k, v):
    """(owner, k, v) of each block of the ring, one after the other."""
    n, rank = dist.get_world_size(), dist.get_rank()
    for step in range(n):
        if step:
            k, v = exchange([k, v])
        yield (rank - step) % n, k, v


def sees(positions, owner):
    mine = positions[dist.get_rank()]
    return mine[:, None] >= positions[owner][None, :]
