"""Known answers to clip_across_shards."""

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
