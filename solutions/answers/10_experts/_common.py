"""What several known answers share."""

import torch
import torch.distributed as dist

from .exchange_with_gradient import exchange_with_gradient


def exchanged_counts(counts):
    theirs = torch.empty_like(counts)
    dist.all_to_all_single(theirs, counts)
    return theirs


def sent_and_received(experts, number):
    """Rows to and from each rank; theirs (n, m): those of each rank for each expert here."""
    n = dist.get_world_size()
    counts = torch.bincount(experts.flatten(), minlength=number)
    theirs = exchanged_counts(counts).view(n, number // n)
    return counts.view(n, -1).sum(1).tolist(), theirs.sum(1).tolist(), theirs


def sorted_there(theirs):
    """The permutation from rank by rank to expert by expert."""
    n, mine = theirs.shape
    return torch.arange(mine).repeat(n).repeat_interleave(theirs.flatten()).argsort(stable=True)


def dispatched(x, experts, number):
    k = experts.shape[1]
    order = experts.flatten().argsort(stable=True)
    sent, received, theirs = sent_and_received(experts, number)
    again = sorted_there(theirs)
    rows = exchange_with_gradient(x[order // k], sent, received)[again]

    def back(outputs):
        returned = exchange_with_gradient(outputs[again.argsort()], received, sent)
        return returned[order.argsort()].unflatten(0, (len(x), k))

    return rows, theirs.sum(0), back
