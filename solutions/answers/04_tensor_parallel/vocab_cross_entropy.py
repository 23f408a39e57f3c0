"""Known answers to vocab_cross_entropy."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.checks.known_answers import right, wrong

from ._common import Sum, g, local_rows, summed
from .megatron_g import megatron_g


@right
def vocab_cross_entropy(logits, targets):
    rank, size = dist.get_rank(), logits.shape[-1]
    with torch.no_grad():
        largest = logits.max(-1).values
        dist.all_reduce(largest, dist.ReduceOp.MAX)
    one_hot = F.one_hot(targets, size * dist.get_world_size())
    one_hot = one_hot[..., rank * size : (rank + 1) * size]
    z = logits - largest.unsqueeze(-1)
    both = megatron_g(torch.stack([z.exp().sum(-1), (z * one_hot).sum(-1)]))
    return (both[0].log() - both[1]).mean()


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets):
        rank, size = dist.get_rank(), logits.shape[-1]
        largest = logits.amax(-1)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        exp = (logits - largest[..., None]).exp()
        total = exp.sum(-1)
        dist.all_reduce(total)
        mine = targets // size == rank
        column = torch.where(mine, targets - rank * size, 0)[..., None]
        own = (logits - largest[..., None]).gather(-1, column)[..., 0] * mine
        dist.all_reduce(own)
        hit = torch.zeros_like(logits).scatter_(-1, column, mine[..., None].to(logits.dtype))
        ctx.save_for_backward((exp / total[..., None] - hit) / targets.numel())
        return (total.log() - own).mean()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0] * gradient, None


@right
def cross_entropy_by_hand(logits, targets):
    return _CrossEntropy.apply(logits, targets)


def loss_parts(logits, targets, largest):
    local, other = local_rows(targets, logits.shape[-1])
    z = logits - largest.unsqueeze(-1)
    own = z.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(other, 0)
    return z.exp().sum(-1), own


def largest_of_all(logits):
    largest = logits.detach().amax(-1)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return largest


@wrong(says="exp of a large logit overflows")
def without_the_largest(logits, targets):
    total, own = loss_parts(logits, targets, torch.zeros_like(logits[..., 0]))
    return (g(total).log() - g(own)).mean()


@wrong(says="only that of this rank's symbols")
def own_symbols_alone(logits, targets):
    total, own = loss_parts(logits, targets, torch.zeros_like(logits[..., 0]))
    return (total.log() - own).mean()


@wrong(says="the sum over the tokens, and the mean is asked")
def summed_over_tokens(logits, targets):
    total, own = loss_parts(logits, targets, largest_of_all(logits))
    return (g(total).log() - g(own)).sum()


@wrong(says="logits of a token stay where they are")
def logits_gathered(logits, targets):
    """Every rank puts its logits between zeros, and the sum has them all."""
    rank, t, size = dist.get_rank(), dist.get_world_size(), logits.shape[-1]
    whole = g(F.pad(logits, (rank * size, (t - 1 - rank) * size)))
    return F.cross_entropy(whole.flatten(0, -2), targets.flatten())


@wrong(says="exactly t = 2 times the reference")
def sums_both_ways(logits, targets):
    total, own = loss_parts(logits, targets, largest_of_all(logits))
    return (Sum.apply(total, True, True).log() - Sum.apply(own, True, True)).mean()


@wrong(says="the gradient of logits is not")
def gradient_of_one_term(logits, targets):
    total, own = loss_parts(logits, targets, largest_of_all(logits))
    return (summed(total).log() - g(own)).mean()
