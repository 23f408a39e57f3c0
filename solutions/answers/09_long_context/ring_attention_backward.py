"""Known answers to ring_attention_backward."""

import math

import torch
import torch.distributed as dist

from course_lib.checks.known_answers import right, wrong

from ._common import INF, blocks, exchange, sees


def gradients(q, k, v, visible, delta, lse, grad_out, scale=None):
    factor = q.shape[-1] ** -0.5
    scores = (q @ k.mT * factor).masked_fill(~visible, -INF)
    weights = (scores - lse[..., None]).exp()
    ds = weights * (grad_out @ v.mT - delta[..., None]) * (factor if scale is None else scale)
    return ds @ k, ds.mT @ q, weights.mT @ grad_out


def travelling(q, k, v, positions, out, lse, grad_out, home=1, delta=None, scale=None, own=True):
    n, rank = dist.get_world_size(), dist.get_rank()
    if delta is None:
        delta = (grad_out * out).sum(-1)
    dq, dk, dv = (torch.zeros_like(each) for each in (q, k, v))
    for step in range(n):
        if step:
            k, v, dk, dv = exchange([k, v, dk, dv])
        if n > 1 and step == 0 and not own:
            continue
        visible = sees(positions, (rank - step) % n)
        of_q, of_k, of_v = gradients(q, k, v, visible, delta, lse, grad_out, scale)
        dq, dk, dv = dq + of_q, dk + of_k, dv + of_v
    for _ in range(home):
        dk, dv = exchange([dk, dv])
    return dq, dk, dv


@right
def own_part_stays_at_home(q, k, v, positions, out, lse, grad_out):
    """n - 1 steps are enough for the gradients: what a rank gives itself need not travel."""
    n, rank = dist.get_world_size(), dist.get_rank()
    delta = (grad_out * out).sum(-1)
    dq, own_dk, own_dv = gradients(q, k, v, sees(positions, rank), delta, lse, grad_out)
    dk = dv = None
    for step in range(1, n):
        if step == 1:
            k, v = exchange([k, v])
            dk, dv = torch.zeros_like(k), torch.zeros_like(v)
        else:
            k, v, dk, dv = exchange([k, v, dk, dv])
        visible = sees(positions, (rank - step) % n)
        of_q, of_k, of_v = gradients(q, k, v, visible, delta, lse, grad_out)
        dq, dk, dv = dq + of_q, dk + of_k, dv + of_v
    if n == 1:
        return dq, own_dk, own_dv
    dk, dv = exchange([dk, dv])
    return dq, own_dk + dk, own_dv + dv


@right
def by_autograd_of_a_block(q, k, v, positions, out, lse, grad_out):
    """Each block's gradients by autograd, of what stands for the block in the whole softmax."""
    n, rank = dist.get_world_size(), dist.get_rank()
    delta = (grad_out * out).sum(-1, keepdim=True)
    dq, dkv = torch.zeros_like(q), torch.zeros_like(torch.stack([k, v]))
    kv = torch.stack([k, v])
    for step in range(n):
        if step:
            kv, dkv = exchange([kv, dkv])
        leaf_q, leaf_kv = q.clone().requires_grad_(), kv.clone().requires_grad_()
        scores = leaf_q @ leaf_kv[0].mT * q.shape[-1] ** -0.5
        scores = scores.masked_fill(~sees(positions, (rank - step) % n), -INF)
        weights = (scores - lse[..., None]).exp()
        value = ((weights @ leaf_kv[1]) * grad_out).sum() - (weights * delta).sum()
        of_q, of_kv = torch.autograd.grad(value, (leaf_q, leaf_kv))
        dq, dkv = dq + of_q, dkv + of_kv
    if n > 1:
        (dkv,) = exchange([dkv])
    return [dq, dkv[0], dkv[1]]


@right
def everything_in_one_message(q, k, v, positions, out, lse, grad_out):
    n, rank = dist.get_world_size(), dist.get_rank()
    delta = (grad_out * out).sum(-1)
    keys, grads = torch.stack([k, v]), torch.zeros(2, *k.shape, dtype=k.dtype)
    dq = 0
    for step in range(n):
        owner = (rank - step) % n
        of_q, of_k, of_v = gradients(q, *keys, sees(positions, owner), delta, lse, grad_out)
        dq, grads = dq + of_q, grads + torch.stack([of_k, of_v])
        if step < n - 1:
            keys, grads = exchange([keys, grads])
    if n > 1:
        grads = exchange([grads])[0]
    return dq, *grads


@right
def two_rings(q, k, v, positions, out, lse, grad_out):
    """Keys travel ahead; their gradients wait for the rank's part, and follow."""
    n, rank = dist.get_world_size(), dist.get_rank()
    delta = (grad_out * out).sum(-1)
    dq, *mine = gradients(q, k, v, sees(positions, rank), delta, lse, grad_out)
    sums = None
    for step in range(1, n):
        k, v = exchange([k, v])
        more, *parts = gradients(q, k, v, sees(positions, (rank - step) % n), delta, lse, grad_out)
        dq += more
        if sums is not None:
            parts = [a + b for a, b in zip(parts, exchange(sums), strict=True)]
        sums = parts
    if n > 1:
        for own, rest in zip(mine, exchange(sums), strict=True):
            own += rest
    return dq, *mine


@right
def in_einsums(q, k, v, positions, out, lse, grad_out):
    n, rank = dist.get_world_size(), dist.get_rank()
    root = math.sqrt(q.shape[-1])
    delta = torch.einsum("bhtd,bhtd->bht", grad_out, out)[..., None]
    travellers = {"k": k, "v": v, "dk": torch.zeros_like(k), "dv": torch.zeros_like(v)}
    dq = q.new_zeros(q.shape)
    for step in range(n):
        owner = (rank + n - step) % n
        seen = positions[owner].unsqueeze(0) <= positions[rank].unsqueeze(1)
        p = torch.einsum("bhtd,bhkd->bhtk", q / root, travellers["k"]).sub(lse[..., None]).exp()
        p = torch.where(seen, p, torch.zeros_like(p))
        ds = p * (torch.einsum("bhtd,bhkd->bhtk", grad_out, travellers["v"]) - delta) / root
        dq.add_(torch.einsum("bhtk,bhkd->bhtd", ds, travellers["k"]))
        travellers["dk"] = travellers["dk"] + torch.einsum("bhtk,bhtd->bhkd", ds, q)
        travellers["dv"] = travellers["dv"] + torch.einsum("bhtk,bhtd->bhkd", p, grad_out)
        names = ["k", "v", "dk", "dv"] if step + 1 < n else ["dk", "dv"]
        arrived = exchange([travellers[name] for name in names])
        travellers |= dict(zip(names, arrived, strict=True))
    return dq, travellers["dk"], travellers["dv"]


@wrong(says="it has not come home")
def last_step_forgotten(q, k, v, positions, out, lse, grad_out):
    return travelling(q, k, v, positions, out, lse, grad_out, home=0)


@wrong(says="only this rank's own part: the others' are missing")
def gradients_stay_at_home(q, k, v, positions, out, lse, grad_out):
    n, rank = dist.get_world_size(), dist.get_rank()
    delta = (grad_out * out).sum(-1)
    dq, dk, dv = gradients(q, k, v, sees(positions, rank), delta, lse, grad_out)
    for owner, keys, values in blocks(k, v):
        if owner != rank:
            dq = dq + gradients(q, keys, values, sees(positions, owner), delta, lse, grad_out)[0]
    return dq, dk, dv


@wrong(says="without the row sums of grad_out * out")
def without_delta(q, k, v, positions, out, lse, grad_out):
    delta = torch.zeros_like(lse)
    return travelling(q, k, v, positions, out, lse, grad_out, delta=delta)


@wrong(says="lacks the factor 1/sqrt(D)")
def scores_gradient_not_scaled(q, k, v, positions, out, lse, grad_out):
    return travelling(q, k, v, positions, out, lse, grad_out, scale=1.0)


@wrong(says="take lse as given, of all keys")
def softmax_of_each_block(q, k, v, positions, out, lse, grad_out):
    n, rank = dist.get_world_size(), dist.get_rank()
    delta = (grad_out * out).sum(-1)
    dq, dk, dv = (torch.zeros_like(each) for each in (q, k, v))
    for step in range(n):
        if step:
            k, v, dk, dv = exchange([k, v, dk, dv])
        visible = sees(positions, (rank - step) % n)
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~visible, -INF)
        own_lse = scores.logsumexp(-1).nan_to_num(neginf=0.0)
        of_q, of_k, of_v = gradients(q, k, v, visible, delta, own_lse, grad_out)
        dq, dk, dv = dq + of_q, dk + of_k, dv + of_v
    dk, dv = exchange([dk, dv])
    return dq, dk, dv


@wrong(says="without this rank's own part")
def own_part_forgotten(q, k, v, positions, out, lse, grad_out):
    n, rank = dist.get_world_size(), dist.get_rank()
    delta = (grad_out * out).sum(-1)
    dq, _, _ = gradients(q, k, v, sees(positions, rank), delta, lse, grad_out)
    of_q, dk, dv = travelling(q, k, v, positions, out, lse, grad_out, own=False)
    return (dq + of_q if n > 1 else of_q), dk, dv


@wrong(says="this rank sent too much")
def keys_go_home_too(q, k, v, positions, out, lse, grad_out):
    result = travelling(q, k, v, positions, out, lse, grad_out)
    exchange([k, v])
    return result


@wrong(says="this exercise is about doing without it")
def reduced_everywhere(q, k, v, positions, out, lse, grad_out):
    """Every rank makes the gradients of all keys, and an all-reduce adds them up."""
    n, rank = dist.get_world_size(), dist.get_rank()
    delta = (grad_out * out).sum(-1)
    dq, every = torch.zeros_like(q), [None] * n
    for owner, keys, values in blocks(k, v):
        of_q, *every[owner] = gradients(
            q, keys, values, sees(positions, owner), delta, lse, grad_out
        )
        dq = dq + of_q
    for pair in every:
        for each in pair:
            dist.all_reduce(each)
    return dq, *every[rank]


@wrong(says="3 tensors, (grad_q, grad_k, grad_v) are expected")
def no_gradient_of_v(q, k, v, positions, out, lse, grad_out):
    return travelling(q, k, v, positions, out, lse, grad_out)[:2]


@wrong(says="hide scores with -inf before it, not with 0 after it")
def hidden_after_the_exp(q, k, v, positions, out, lse, grad_out):
    n, rank = dist.get_world_size(), dist.get_rank()
    scale, delta = q.shape[-1] ** -0.5, (grad_out * out).sum(-1, keepdim=True)
    dq, dk, dv = (torch.zeros_like(each) for each in (q, k, v))
    for step in range(n):
        if step:
            k, v, dk, dv = exchange([k, v, dk, dv])
        seen = sees(positions, (rank - step) % n)
        weights = (q @ k.mT * scale - lse[..., None]).exp() * seen
        ds = weights * (grad_out @ v.mT - delta) * scale
        dq, dk, dv = dq + ds @ k, dk + ds.mT @ q, dv + weights.mT @ grad_out
    return dq, *exchange([dk, dv])


@right
def all_four_in_one_message(q, k, v, positions, out, lse, grad_out):
    n, rank = dist.get_world_size(), dist.get_rank()
    delta, dq = (grad_out * out).sum(-1), torch.zeros_like(q)
    four = torch.stack([k, v, torch.zeros_like(k), torch.zeros_like(v)])
    for step in range(n):
        if step:
            (four,) = exchange([four])
        visible = sees(positions, (rank - step) % n)
        of_q, of_k, of_v = gradients(q, four[0], four[1], visible, delta, lse, grad_out)
        dq += of_q
        four[2] += of_k
        four[3] += of_v
    (home,) = exchange([four[2:]])
    return dq, home[0], home[1]
