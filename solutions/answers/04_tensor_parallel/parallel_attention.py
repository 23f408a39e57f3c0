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
