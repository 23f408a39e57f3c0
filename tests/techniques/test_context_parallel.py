"""Attention over a cut sequence is that of one process: outputs and all gradients."""

import itertools

import pytest
import torch
import torch.distributed as dist

from course_lib.ranks import collect
from course_lib.techniques.context_parallel import (
    all_gather_attention,
    packed_documents,
    padding_documents,
    plain_split,
    ring_attention,
    striped_split,
    ulysses_attention,
    zigzag_split,
)

ATTENTIONS = (ring_attention, all_gather_attention, ulysses_attention)
SPLITS = (plain_split, zigzag_split, striped_split)
SIZES = (1, 2, 3, 4, 5)
BATCH, HEAD = 2, 4
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 0.06}


def documents_of(kind, tokens):
    """Of a batch: none, padding behind, or several in a row with padding behind."""
    if kind == "padding":
        return padding_documents([tokens, tokens // 3], tokens)
    if kind == "packed":
        lengths = [tokens // 4, 1, tokens // 2], [tokens - 2, 2]
        return torch.stack([packed_documents(each, tokens) for each in lengths])
    return None


def reference(q, k, v, causal, documents):
    """Softmax over the keys that a query sees, in float64 and one process."""
    heads = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(heads, 1), v.repeat_interleave(heads, 1)
    tokens = q.shape[2]
    seen = torch.ones(tokens, tokens, dtype=torch.bool)
    seen = (seen.tril() if causal else seen).expand(BATCH, 1, -1, -1)
    if documents is not None:
        same = documents[:, None, :, None] == documents[:, None, None, :]
        seen = seen & same & (documents >= 0)[:, None, :, None]
    exponentials = (q @ k.mT / q.shape[-1] ** 0.5).exp() * seen
    return exponentials @ v / exponentials.sum(-1, keepdim=True).clamp_min(1e-300)


def inputs(tokens, heads, kv_heads, dtype):
    """q, k, v and weights of the outputs, of the whole sequence, the same on every rank."""
    random = torch.Generator().manual_seed(tokens + heads)

    def draw(number):
        shape = (BATCH, number, tokens, HEAD)
        return torch.randn(shape, generator=random, dtype=torch.float64).to(dtype)

    return draw(heads), draw(kv_heads), draw(kv_heads), draw(heads)


def through(function, leaves, weights):
    """What comes out, and the gradients of the leaves."""
    leaves = [leaf.detach().requires_grad_() for leaf in leaves]
    out = function(*leaves)
    out.backward(weights)
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def apart(attention, make_split, tokens, heads, kv_heads, dtype, causal=True, kind=None):
    """By how much outputs and gradients differ from one process: the largest of this rank."""
    split, rank = make_split(tokens, dist.get_world_size()), dist.get_rank()
    *whole, weights = inputs(tokens, heads, kv_heads, dtype)
    documents = documents_of(kind, tokens)

    def own(x):
        return split.of(x, rank, dim=2)

    found = through(
        lambda q, k, v: attention(q, k, v, split, causal=causal, documents=documents),
        map(own, whole),
        own(weights),
    )
    wanted = through(
        lambda q, k, v: reference(q, k, v, causal, documents),
        [x.double() for x in whole],
        weights.double(),
    )
    assert all(x.dtype == dtype for x in found)
    return max((f - own(w)).abs().max().item() for f, w in zip(found, wanted, strict=True))


def every_case():
    """Every attention, split and mask with uneven parts; types and other shapes with zigzag."""
    n = dist.get_world_size()
    heads, found = 2 * n, {}
    uneven = [(23, n, torch.float64, True)]
    others = [
        (24, heads, torch.float64, True),
        (n + 8, 1, torch.float64, False),
        (23, n, torch.float32, True),
        (24, heads, torch.bfloat16, True),
    ]
    for attention, make_split, kind in itertools.product(
        ATTENTIONS, SPLITS, (None, "padding", "packed")
    ):
        widely = make_split is zigzag_split and kind != "padding"
        for tokens, kv_heads, dtype, causal in uneven + others * widely:
            case = (attention.__name__, make_split.__name__, kind, tokens, kv_heads, dtype, causal)
            difference = apart(attention, make_split, tokens, heads, kv_heads, dtype, causal, kind)
            found[case] = difference, TOLERANCE[dtype]
    return found


@pytest.mark.parametrize("size", SIZES)
def test_outputs_and_gradients_are_those_of_one_process(size):
    results = collect(every_case, size, observe=False, timeout=120)
    for found in results:
        assert len(found) == 51
        wrong = {case: d for case, (d, tolerance) in found.items() if not d <= tolerance}
        assert not wrong
