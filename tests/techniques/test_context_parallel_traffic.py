"""What the three attentions send, to the byte; what is computed, when, and what memory it takes."""

import pytest
import torch
import torch.distributed as dist

from course_lib.ranks import collect
from course_lib.techniques.context_parallel import (
    all_gather_attention,
    all_gather_bytes,
    ring_attention,
    ring_bytes,
    ulysses_attention,
    ulysses_bytes,
    zigzag_split,
)

BATCH, HEADS, HEAD = 2, 12, 4
OPERATIONS = {
    ring_attention: {"send"},
    all_gather_attention: {"all_gather", "reduce_scatter"},
    ulysses_attention: {"all_to_all"},
}


def inputs(split, kv_heads, dtype=torch.float32, batch=BATCH, heads=HEADS, head=HEAD):
    torch.manual_seed(0)
    tokens = split.size(dist.get_rank())
    return [
        torch.randn(batch, number, tokens, head, dtype=dtype).requires_grad_()
        for number in (heads, kv_heads, kv_heads)
    ]


def layers(tokens, kv_heads, dtype, backward):
    split = zigzag_split(tokens, dist.get_world_size())
    for attention in OPERATIONS:
        out = attention(*inputs(split, kv_heads, dtype), split)
        if backward:
            out.sum().backward()


@pytest.mark.parametrize(
    ("size", "tokens", "kv_heads"), [(1, 7, 2), (2, 16, 2), (3, 23, 3), (4, 22, 2)]
)
@pytest.mark.parametrize(("dtype", "element"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_bytes_are_the_formulas(size, tokens, kv_heads, dtype, element):
    split = zigzag_split(tokens, size)
    wanted = {
        ring_attention: [ring_bytes(split, r, BATCH, kv_heads, HEAD, element) for r in range(size)],
        all_gather_attention: [
            all_gather_bytes(split, r, BATCH, kv_heads, HEAD, element) for r in range(size)
        ],
        ulysses_attention: [
            ulysses_bytes(split, r, BATCH, HEADS, kv_heads, HEAD, element) for r in range(size)
        ],
    }
    for backward in (False, True):
        trace = collect(layers, size, (tokens, kv_heads, dtype, backward)).trace
        assert not trace.warnings
        found = {op: sent for op, (sent, _) in trace.traffic().by_operation.items()}
        for attention, operations in OPERATIONS.items():
            sent = [sum(found[op][r] for op in operations & set(found)) for r in range(size)]
            each = wanted[attention]
            assert sent == [sum(e) if backward else e[0] for e in each], attention.__name__
