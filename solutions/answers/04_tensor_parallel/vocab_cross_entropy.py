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


@wrong(says="the sum over the tokens, and the mean is expected")
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


@right
def by_logsumexp(logits, targets):
    own = logits.logsumexp(-1)
    largest = own.detach().clone()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    local, other = local_rows(targets, logits.shape[-1])
    found = logits.gather(-1, local[..., None]).squeeze(-1)
    total = g((own - largest).exp()).log() + largest
    return (total - g(torch.where(other, 0.0, found))).mean()


@right
def flat_tokens(logits, targets):
    rows, columns = logits.flatten(0, 1), targets.flatten()
    largest = largest_of_all(rows)
    total, own = loss_parts(rows, columns, largest)
    both = g(torch.stack([total, own], -1))
    return (both[:, 0].log() - both[:, 1]).sum() / columns.numel()


@right
def put_in_by_index(logits, targets):
    rows, columns = logits.flatten(0, 1), targets.flatten()
    z = rows - largest_of_all(rows)[:, None]
    ours = (columns // rows.shape[1] == dist.get_rank()).nonzero().flatten()
    own = z.new_zeros(len(z)).index_put((ours,), z[ours, columns[ours] % rows.shape[1]])
    return torch.mean(torch.log(g(z.exp().sum(1))) - g(own))


@wrong(says="if each rank subtracts the largest of its own logits")
def the_largest_of_this_rank(logits, targets):
    total, own = loss_parts(logits, targets, logits.detach().amax(-1))
    return (g(total).log() - g(own)).mean()


@wrong(says="a sum of logarithms")
def log_before_the_sum(logits, targets):
    total, own = loss_parts(logits, targets, largest_of_all(logits))
    return (g(total.log()) - g(own)).mean()


@wrong(says="subtract it from the target's logit as well")
def target_not_shifted(logits, targets):
    largest = largest_of_all(logits)
    total, _ = loss_parts(logits, targets, largest)
    _, own = loss_parts(logits, targets, torch.zeros_like(largest))
    return (g(total).log() - g(own)).mean()


@wrong(says="add some other logit (the nearest of its own): they add zero")
def some_logit_of_every_rank(logits, targets):
    largest = largest_of_all(logits)
    total, _ = loss_parts(logits, targets, largest)
    local, _ = local_rows(targets, logits.shape[-1])
    own = (logits - largest[..., None]).gather(-1, local[..., None]).squeeze(-1)
    return (g(total).log() - g(own)).mean()


@wrong(says="Subtract the largest logit of each token by itself, whatever its sign")
def never_below_zero(logits, targets):
    total, own = loss_parts(logits, targets, largest_of_all(logits).clamp(min=0))
    return (g(total).log() - g(own)).mean()


@wrong(says="Subtract the largest logit of each token by itself, whatever its sign")
def the_largest_of_all_tokens(logits, targets):
    largest = largest_of_all(logits)
    total, own = loss_parts(logits, targets, largest.max().expand_as(largest))
    return (g(total).log() - g(own)).mean()
