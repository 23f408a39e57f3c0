"""Known answers to parallel_attention."""

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.checks.known_answers import right, wrong

from ._common import f, g
from .megatron_f import megatron_f
from .megatron_g import megatron_g


@right
def parallel_attention(x, query, key, value, out, heads):
    t = dist.get_world_size()
    if heads < t or heads % t != 0:
        raise ValueError(f"cannot share {heads} heads between {t} ranks")
    size = len(query) * t // heads
    x = megatron_f(x)
    outputs = []
    for h in range(heads // t):
        own = slice(h * size, (h + 1) * size)
        q, k, v = x @ query[own].T, x @ key[own].T, x @ value[own].T
        scores = q @ k.transpose(-1, -2) / size**0.5
        scores = scores + torch.full_like(scores[0], float("-inf")).triu(1)
        outputs.append(scores.softmax(-1) @ v)
    return megatron_g(torch.cat(outputs, -1) @ out.T)


def attend(x, query, key, value, heads, causal=True):
    q, k, v = ((x @ w.T).unflatten(-1, (heads, -1)).transpose(1, 2) for w in (query, key, value))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return mixed.transpose(1, 2).flatten(-2)


def own_heads(heads):
    t = dist.get_world_size()
    if heads % t:
        raise ValueError(f"{heads} heads, {t} ranks")
    return heads // t


@wrong(says="f is missing")
def attention_without_f(x, query, key, value, out, heads):
    return g(attend(x, query, key, value, own_heads(heads)) @ out.T)


@wrong(says="g is missing")
def attention_without_g(x, query, key, value, out, heads):
    return attend(f(x), query, key, value, own_heads(heads)) @ out.T


@wrong(says="of 4, each rank has 2")
def all_heads_on_every_rank(x, query, key, value, out, heads):
    own_heads(heads)
    return g(attend(f(x), query, key, value, heads) @ out.T)


@wrong(says="make it causal")
def attention_to_the_future(x, query, key, value, out, heads):
    return g(attend(f(x), query, key, value, own_heads(heads), causal=False) @ out.T)


@wrong(says="one all-reduce of the input's gradient (f)")
def f_three_times(x, query, key, value, out, heads):
    n = own_heads(heads)
    q, k, v = ((f(x) @ w.T).unflatten(-1, (n, -1)).transpose(1, 2) for w in (query, key, value))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return g(mixed.transpose(1, 2).flatten(-2) @ out.T)


@wrong(says="raise a ValueError before anything is sent")
def heads_cut_in_two(x, query, key, value, out, heads):
    heads = max(1, heads // dist.get_world_size())
    return g(attend(f(x), query, key, value, heads) @ out.T)


@wrong(says="names both numbers")
def a_silent_value_error(x, query, key, value, out, heads):
    if heads % dist.get_world_size():
        raise ValueError("impossible")
    return g(attend(f(x), query, key, value, own_heads(heads)) @ out.T)


@right
def attention_of_one_product(x, query, key, value, out, heads):
    t = dist.get_world_size()
    if heads // t * t != heads:
        raise ValueError(f"{heads} heads do not go into {t} ranks")
    batch, tokens, _ = x.shape
    parts = (f(x) @ torch.cat([query, key, value]).T).chunk(3, -1)
    q, k, v = (p.reshape(batch, tokens, heads // t, -1).permute(0, 2, 1, 3) for p in parts)
    scores = torch.einsum("bhid,bhjd->bhij", q, k) / q.shape[-1] ** 0.5
    later = torch.triu(torch.ones(tokens, tokens), 1).bool()
    weights = F.softmax(scores.masked_fill(later, float("-inf")), -1)
    mixed = torch.einsum("bhij,bhjd->bihd", weights, v).reshape(batch, tokens, -1)
    return g(F.linear(mixed, out))


@right
def attention_head_by_head(x, query, key, value, out, heads):
    n = own_heads(heads)
    x, size, total = f(x), len(query) // n, 0
    places = torch.arange(x.shape[1])
    for h in range(n):
        own = slice(h * size, (h + 1) * size)
        scores = (x @ query[own].T) @ (x @ key[own].T).mT * size**-0.5
        scores = torch.where(places[:, None] >= places, scores, scores.new_tensor(float("-inf")))
        total = total + scores.softmax(-1) @ (x @ value[own].T) @ out[:, own].T
    return g(total)


@right
def attention_with_a_mask(x, query, key, value, out, heads):
    n, x = own_heads(heads), f(x)
    q, k, v = ((x @ w.T).unflatten(-1, (n, -1)).transpose(1, 2) for w in (query, key, value))
    mask = x.new_full((x.shape[1],) * 2, float("-inf")).triu(1)
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return g(mixed.transpose(1, 2).flatten(-2) @ out.T)


@wrong(says="must match the size of tensor b (4)")
def a_mask_of_four(x, query, key, value, out, heads):
    n, x = own_heads(heads), f(x)
    q, k, v = ((x @ w.T).unflatten(-1, (n, -1)).transpose(1, 2) for w in (query, key, value))
    mask = torch.ones(4, 4, dtype=torch.bool).tril()[: x.shape[1], : x.shape[1]]
    mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return g(mixed.transpose(1, 2).flatten(-2) @ out.T)


@wrong(says="the heads are not transposed back")
def heads_not_put_back(x, query, key, value, out, heads):
    n, x = own_heads(heads), f(x)
    q, k, v = ((x @ w.T).unflatten(-1, (n, -1)).transpose(1, 2) for w in (query, key, value))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return g(mixed.reshape(*x.shape[:2], -1) @ out.T)


@wrong(says="attention between heads")
def heads_not_put_forward(x, query, key, value, out, heads):
    n, x = own_heads(heads), f(x)
    q, k, v = ((x @ w.T).unflatten(-1, (n, -1)) for w in (query, key, value))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return g(mixed.flatten(-2) @ out.T)


@wrong(says="without the division of the scores")
def scores_not_scaled(x, query, key, value, out, heads):
    n, x = own_heads(heads), f(x)
    q, k, v = ((x @ w.T).unflatten(-1, (n, -1)).transpose(1, 2) for w in (query, key, value))
    mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)
    return g(mixed.transpose(1, 2).flatten(-2) @ out.T)


@wrong(says="what comes out with f and g swapped")
def attention_with_f_for_g(x, query, key, value, out, heads):
    return f(attend(g(x), query, key, value, own_heads(heads)) @ out.T)


@right
def attention_in_a_function_of_its_own(x, query, key, value, out, heads):
    """Heads in the batch dimension, and a softmax by hand."""
    t = dist.get_world_size()
    n, rest = divmod(heads, t)
    if rest:
        raise ValueError(f"{heads} heads, {t} ranks")
    (b, s, _), x = x.shape, megatron_f(x)

    def by_head(weight):
        return F.linear(x, weight).view(b, s, n, -1).movedim(2, 1).reshape(b * n, s, -1)

    q, k, v = by_head(query), by_head(key), by_head(value)
    scores = torch.bmm(q, k.mT) / k.shape[-1] ** 0.5
    scores = scores.masked_fill(~torch.ones(s, s, dtype=torch.bool).tril(), float("-inf"))
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    mixed = torch.bmm(weights / weights.sum(-1, keepdim=True), v)
    return megatron_g(mixed.view(b, n, s, -1).movedim(1, 2).reshape(b, s, -1) @ out.mT)
