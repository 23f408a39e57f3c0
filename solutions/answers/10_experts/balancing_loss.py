"""Known answers to balancing_loss."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.checks.known_answers import right, wrong


def counted(logits, experts):
    return torch.bincount(experts.flatten(), minlength=logits.shape[1])


def shares_of_all(logits, experts):
    counts = counted(logits, experts)
    dist.all_reduce(counts)
    return counts / counts.sum()


def probabilities(logits):
    return logits.softmax(-1).mean(0)


@right
def balancing_loss(logits, experts):
    f = shares_of_all(logits, experts)
    return logits.shape[1] * (f * probabilities(logits)).sum()


@right
def as_a_dot_product(logits, experts):
    tokens, number = logits.shape
    f = F.one_hot(experts, number).sum((0, 1)).to(logits.dtype) / experts.numel()
    dist.all_reduce(f)
    p = torch.exp(F.log_softmax(logits, dim=1)).sum(0) / tokens
    return torch.dot(f / dist.get_world_size(), p).mul(number)


@right
def token_by_token(logits, experts):
    """The mean over tokens of what each token's probabilities cost."""
    f = shares_of_all(logits, experts).to(logits.dtype)
    return ((logits.softmax(1) @ f) * len(f)).mean()


@right
def choice_by_choice(logits, experts):
    """Every choice of any rank costs what its expert's probability is."""
    tokens, number = logits.shape
    shares = torch.zeros(number, dtype=torch.float64)
    for expert in experts.reshape(-1).tolist():
        shares[expert] += 1 / experts.numel() / dist.get_world_size()
    dist.all_reduce(shares)
    loss = 0.0
    for expert, share in enumerate(shares):
        loss = loss + number * share * logits.softmax(1)[:, expert].sum() / tokens
    return loss


@right
def with_handles_and_einsum(logits, experts):
    counts = torch.zeros(logits.size(1), dtype=torch.int64)
    counts.scatter_add_(0, experts.flatten(), torch.ones_like(experts.flatten()))
    work = dist.all_reduce(counts, async_op=True)
    p = F.softmax(logits, dim=-1)
    work.wait()
    f = (counts / (experts.numel() * dist.get_world_size())).detach().to(p.dtype)
    return torch.einsum("te,e->", p, f) * p.shape[1] / p.shape[0]


@wrong(says="f is that of all ranks")
def of_this_rank(logits, experts):
    counts = counted(logits, experts)
    return logits.shape[1] * (counts / counts.sum() * probabilities(logits)).sum()


@wrong(says="without the factor E")
def without_the_number(logits, experts):
    return (shares_of_all(logits, experts) * probabilities(logits)).sum()


@wrong(says="made of counts, not of shares")
def of_counts(logits, experts):
    counts = counted(logits, experts)
    dist.all_reduce(counts)
    return logits.shape[1] * (counts * probabilities(logits)).sum()


@wrong(says="n times too much")
def of_summed_shares(logits, experts):
    f = counted(logits, experts) / experts.numel()
    dist.all_reduce(f)
    return logits.shape[1] * (f * probabilities(logits)).sum()


@wrong(says="there is none. Counts have no gradient")
def without_gradient(logits, experts):
    f = shares_of_all(logits, experts)
    return (logits.shape[1] * (f * probabilities(logits.detach())).sum()).requires_grad_()


@wrong(says="made of only P")
def of_probabilities(logits, experts):
    counts = counted(logits, experts)
    dist.all_reduce(counts)
    p = probabilities(logits)
    return logits.shape[1] * (p * p).sum() + 0 * counts.sum()


@wrong(says="that needs P of all ranks")
def the_whole_loss(logits, experts):
    f, p = shares_of_all(logits, experts), probabilities(logits)
    mean = p.detach().clone()
    dist.all_reduce(mean)
    mean /= dist.get_world_size()
    return logits.shape[1] * (f * (p - p.detach() + mean)).sum()


@wrong(says="but not what is sent")
def sends_all_choices(logits, experts):
    """A table of who chose whom, added up over the ranks."""
    n, rank = dist.get_world_size(), dist.get_rank()
    table = torch.zeros(n, logits.shape[1], dtype=torch.int64)
    table[rank] = counted(logits, experts)
    dist.all_reduce(table)
    counts = table.sum(0)
    return logits.shape[1] * (counts / counts.sum() * probabilities(logits)).sum()


@wrong(says="k times too much")
def of_tokens(logits, experts):
    """Shares of tokens: with k choices they add up to k."""
    f = shares_of_all(logits, experts) * experts.shape[1]
    return logits.shape[1] * (f * probabilities(logits)).sum()
