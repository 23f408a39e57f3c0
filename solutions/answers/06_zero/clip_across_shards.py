"""Known answers to clip_across_shards."""

import itertools
import math

import numpy as np
import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong


@right
def clip_across_shards(shards, replicated, max_norm):
    square = torch.zeros(1, dtype=torch.float64)
    for p in shards:
        if p.grad is not None:
            square += p.grad.double().pow(2).sum()
    dist.all_reduce(square)
    for p in replicated:
        if p.grad is not None:
            square += p.grad.double().pow(2).sum()
    norm = float(square) ** 0.5
    for p in [*shards, *replicated]:
        if p.grad is not None and norm > max_norm:
            p.grad *= max_norm / norm
    return norm


@right
def clip_across_shards_by_torch(shards, replicated, max_norm):
    """Every rank counts an n-th of what is replicated; torch does the rest."""
    n = dist.get_world_size()
    own, same = (
        torch.nn.utils.get_total_norm([p.grad.double() for p in kind if p.grad is not None])
        for kind in (shards, replicated)
    )
    square = (own**2 + same**2 / n).double()
    dist.all_reduce(square)
    torch.nn.utils.clip_grads_with_norm_([*shards, *replicated], max_norm, square.sqrt())
    return square.sqrt()


@wrong(says="may be more than float16 holds")
def squares_in_the_dtype_of_the_gradients(shards, replicated, max_norm):
    def square(parts, copies):
        dist.all_reduce(parts)
        return parts + copies

    return clip(shards, replicated, max_norm, square)


def clip(shards, replicated, max_norm, square, factor=lambda norm, most: min(1.0, most / norm)):
    """square(parts, copies): the square of the norm, from the sums of squares of this rank."""
    parts = torch.zeros(1, dtype=torch.float64)
    for p in shards:
        if p.grad is not None:
            parts += (p.grad**2).sum()
    copies = torch.zeros(1, dtype=torch.float64)
    for p in replicated:
        if p.grad is not None:
            copies += (p.grad**2).sum()
    norm = square(parts, copies).sqrt()
    for p in [*shards, *replicated]:
        if p.grad is not None:
            p.grad *= factor(float(norm), max_norm)
    return norm


def summed(tensor):
    dist.all_reduce(tensor)
    return tensor


@wrong(says="each rank would scale by a factor of its own")
def local_norm(shards, replicated, max_norm):
    return clip(shards, replicated, max_norm, lambda parts, copies: parts + copies)


@wrong(says="counted once on every rank")
def copies_counted_by_all(shards, replicated, max_norm):
    return clip(shards, replicated, max_norm, lambda parts, copies: summed(parts + copies))


@wrong(says="these are the ranks' norms, added")
def norms_added(shards, replicated, max_norm):
    def square(parts, copies):
        return summed((parts + copies).sqrt()) ** 2

    return clip(shards, replicated, max_norm, square)


@wrong(says="this is an average over ranks")
def squares_averaged(shards, replicated, max_norm):
    def square(parts, copies):
        return summed(parts + copies) / dist.get_world_size()

    return clip(shards, replicated, max_norm, square)


@wrong(says="the replicated gradients are left out")
def copies_left_out(shards, replicated, max_norm):
    return clip(shards, replicated, max_norm, lambda parts, copies: summed(parts))


@wrong(says="clipping never makes them longer")
def scaled_up(shards, replicated, max_norm):
    return clip(
        shards,
        replicated,
        max_norm,
        lambda parts, copies: summed(parts) + copies,
        factor=lambda norm, most: most / norm,
    )


@wrong(says="even one with empty shards or without any gradient")
def empty_ranks_leave(shards, replicated, max_norm):
    if sum(p.grad.numel() for p in shards if p.grad is not None) == 0:
        return 0.0
    return clip(shards, replicated, max_norm, lambda parts, copies: summed(parts) + copies)


@wrong(says="whole gradients went over the network")
def gradients_gathered(shards, replicated, max_norm):
    n, rank = dist.get_world_size(), dist.get_rank()
    everyone = torch.zeros(n, 200, dtype=torch.float64)
    mine = torch.cat([p.grad.flatten() for p in shards if p.grad is not None] or [torch.zeros(0)])
    everyone[rank, : mine.numel()] = mine
    dist.all_reduce(everyone)
    return clip(
        shards, replicated, max_norm, lambda parts, copies: (everyone**2).sum().view(1) + copies
    )


@right
def clip_by_norms_of_norms(shards, replicated, max_norm):
    def norm_of(parameters):
        norms = [p.grad.double().norm() for p in parameters if p.grad is not None]
        return torch.stack(norms).norm() if norms else torch.zeros((), dtype=torch.float64)

    parts = [torch.empty((), dtype=torch.float64) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, norm_of(shards))
    norm = torch.stack([*parts, norm_of(replicated)]).norm()
    if norm > max_norm:
        for p in itertools.chain(shards, replicated):
            if p.grad is not None:
                p.grad.mul_(max_norm / norm)
    return norm


@right
def clip_with_rank_0_counting_what_is_replicated(shards, replicated, max_norm):
    counted = [*shards, *(replicated if dist.get_rank() == 0 else [])]
    gradients = [p.grad for p in counted if p.grad is not None]
    total = torch.tensor([math.fsum(g.double().square().sum().item() for g in gradients)]).double()
    dist.all_reduce(total)
    norm = math.sqrt(total)
    scale = min(1.0, max_norm / norm) if norm else 1.0
    for p in [*shards, *replicated]:
        if scale < 1 and p.grad is not None:
            p.grad.copy_(p.grad.double() * scale)
    return norm


@right
def clip_in_numpy(shards, replicated, max_norm):
    def squares(parameters):
        flat = [p.grad.double().reshape(-1) for p in parameters if p.grad is not None]
        return np.square(torch.cat(flat).numpy()).sum() if flat else 0.0

    shared = torch.tensor(squares(shards), dtype=torch.float64)
    dist.all_reduce(shared)
    norm = np.sqrt(shared.item() + squares(replicated))
    if norm > max_norm:
        for gradient in (p.grad for p in [*shards, *replicated] if p.grad is not None):
            gradient.mul_(max_norm / float(norm))
    return norm


@wrong(says="`shards[0]` is not what it was before the call")
def parameters_scaled_as_well(shards, replicated, max_norm):
    norm = clip_across_shards(shards, replicated, max_norm)
    for p in [*shards, *replicated]:
        if norm > max_norm:
            p.data *= max_norm / norm
    return norm
