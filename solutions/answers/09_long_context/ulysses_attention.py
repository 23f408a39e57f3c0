"""Known answers to ulysses_attention."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.checks.known_answers import right, wrong


def exchange(x, cut, join):
    n = dist.get_world_size()
    parts = [part.contiguous() for part in x.chunk(n, cut)]
    arrived = [torch.empty_like(part) for part in parts]
    dist.all_to_all(arrived, parts)
    return torch.cat(arrived, join)


def refuse(heads):
    n = dist.get_world_size()
    if heads % n:
        raise ValueError(f"{heads} heads cannot be shared by {n} ranks")


def attended(q, k, v, causal=True):
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


@right
def three_in_one_exchange(q, k, v):
    refuse(q.shape[1])
    q, k, v = exchange(torch.stack([q, k, v]), 2, 3)
    return exchange(attended(q, k, v), 2, 1)


@right
def single_tensors(q, k, v):
    """With all_to_all_single, which cuts along the first dimension."""
    n, heads = dist.get_world_size(), q.shape[1]
    if heads < n or heads % n != 0:
        raise ValueError(f"{n} ranks, {heads} heads")

    def to_heads(x):
        outgoing = x.unflatten(1, (n, -1)).movedim(1, 0).contiguous()  # n, B, H/n, T/n, D
        coming = torch.empty_like(outgoing)
        dist.all_to_all_single(coming, outgoing)
        return coming.movedim(0, 2).flatten(2, 3)

    def to_tokens(x):
        outgoing = x.unflatten(2, (n, -1)).movedim(2, 0).contiguous()
        coming = torch.empty_like(outgoing)
        dist.all_to_all_single(coming, outgoing)
        return coming.movedim(0, 1).flatten(1, 2)

    return to_tokens(attended(to_heads(q), to_heads(k), to_heads(v)))


@right
def with_a_mask_of_ones(q, k, v):
    refuse(q.shape[1])
    q, k, v = (exchange(x, 1, 2) for x in (q, k, v))
    scores = q @ k.mT * q.shape[-1] ** -0.5
    later = torch.ones(scores.shape[-2:]).triu(1).bool()
    return exchange(scores.masked_fill(later, float("-inf")).softmax(-1) @ v, 2, 1)


@right
def with_handles(q, k, v):
    """All three are under way at once."""
    refuse(q.shape[1])
    n = dist.get_world_size()
    arrived, works = [], []
    for x in (q, k, v):
        parts = [part.clone() for part in x.tensor_split(n, 1)]
        arrived.append([torch.empty_like(part) for part in parts])
        works.append((dist.all_to_all(arrived[-1], parts, async_op=True), parts))
    for work, _ in works:
        work.wait()
    out = attended(*(torch.cat(each, dim=2) for each in arrived))
    leaving = list(map(torch.Tensor.contiguous, out.split(out.shape[2] // n, dim=2)))
    coming = [torch.zeros_like(part) for part in leaving]
    dist.all_to_all(coming, leaving, async_op=True).wait()
    return torch.cat(coming, dim=1)


@right
def written_into_place(q, k, v):
    """Tokens as rows, as many for each rank; results are written where they belong."""
    n, (batch, heads, tokens, size) = dist.get_world_size(), q.shape
    if heads % n:
        raise ValueError(f"heads {heads}, ranks {n}")
    mine = heads // n
    whole = q.new_empty(3, batch, mine, n * tokens, size)
    for kind, x in enumerate((q, k, v)):
        leaving = torch.stack([x[:, r * mine : (r + 1) * mine] for r in range(n)])
        coming = torch.empty_like(leaving)
        dist.all_to_all_single(coming, leaving, [1] * n, [1] * n)
        for r in range(n):
            whole[kind, :, :, r * tokens : (r + 1) * tokens] = coming[r]
    out, result = attended(*whole), torch.empty_like(q)
    leaving = torch.stack([out[:, :, r * tokens : (r + 1) * tokens] for r in range(n)])
    coming = torch.empty_like(leaving)
    dist.all_to_all_single(coming, leaving)
    for r in range(n):
        result[:, r * mine : (r + 1) * mine] = coming[r]
    return result


@wrong(says="the others' keys are missing")
def own_tokens_only(q, k, v):
    refuse(q.shape[1])
    return attended(q, k, v)


@wrong(says="make it causal")
def ulysses_without_a_mask(q, k, v):
    refuse(q.shape[1])
    q, k, v = (exchange(x, 1, 2) for x in (q, k, v))
    return exchange(attended(q, k, v, causal=False), 2, 1)


@wrong(says="is it the one that you mean?")
def cut_the_same_way_twice(q, k, v):
    """On the way back too, heads are cut, and a rank has fewer of them than there are ranks."""
    refuse(q.shape[1])
    q, k, v = (exchange(x, 1, 2) for x in (q, k, v))
    return exchange(attended(q, k, v), 1, 2)


@wrong(says="the shape is wrong")
def not_sent_back(q, k, v):
    refuse(q.shape[1])
    return attended(*(exchange(x, 1, 2) for x in (q, k, v)))


@wrong(says="raise a ValueError before anything is sent")
def heads_that_do_not_divide(q, k, v):
    n = dist.get_world_size()
    if q.shape[1] % n == 0:
        q, k, v = (exchange(x, 1, 2) for x in (q, k, v))
        return exchange(attended(q, k, v), 2, 1)
    return attended(q, k, v)


@wrong(says="names both numbers")
def a_short_complaint(q, k, v):
    if q.shape[1] % dist.get_world_size():
        raise ValueError("heads")
    q, k, v = (exchange(x, 1, 2) for x in (q, k, v))
    return exchange(attended(q, k, v), 2, 1)


@wrong(says="this exercise is about doing without it")
def everything_gathered(q, k, v):
    refuse(q.shape[1])
    n, rank = dist.get_world_size(), dist.get_rank()
    whole = []
    for x in (q, k, v):
        parts = [torch.empty_like(x) for _ in range(n)]
        dist.all_gather(parts, x.contiguous())
        whole.append(torch.cat(parts, 2))
    return attended(*whole).chunk(n, 2)[rank]


@wrong(says="four exchanges, q, k, v and the output")
def all_tokens_to_everybody(q, k, v):
    """An all-to-all that sends everything to all is an all-gather."""
    refuse(q.shape[1])
    n, rank = dist.get_world_size(), dist.get_rank()
    if n == 1:
        return attended(q, k, v)
    whole = []
    for x in (q, k, v):
        arrived = [torch.empty_like(x) for _ in range(n)]
        dist.all_to_all(arrived, [x.contiguous()] * n)
        whole.append(torch.cat(arrived, 2))
    return attended(*whole).chunk(n, 2)[rank]


@wrong(says="the right heads in another order")
def heads_dealt_out(q, k, v):
    """Heads r, r + n, ... go to rank r, and come back as if they had been side by side."""
    refuse(q.shape[1])
    n = dist.get_world_size()
    order = torch.arange(q.shape[1]).view(-1, n).T.flatten()
    q, k, v = (exchange(x[:, order], 1, 2) for x in (q, k, v))
    return exchange(attended(q, k, v), 2, 1)


@wrong(says="not a tensor")
def ulysses_with_the_keys(q, k, v):
    refuse(q.shape[1])
    q, k, v = (exchange(x, 1, 2) for x in (q, k, v))
    return exchange(attended(q, k, v), 2, 1), k
