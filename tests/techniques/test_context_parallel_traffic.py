"""What the three attentions send, to the byte; what is computed, when, and what memory it takes."""

import collections

import pytest
import torch
import torch.distributed as dist

from course_lib.ranks import collect
from course_lib.techniques.context_parallel import (
    all_gather_attention,
    all_gather_bytes,
    all_gather_memory,
    plain_split,
    ring_attention,
    ring_bytes,
    ring_memory,
    ulysses_attention,
    ulysses_bytes,
    ulysses_memory,
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
def test_bytes_and_messages_are_the_formulas(size, tokens, kv_heads, dtype, element):
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
        messages = collections.Counter(event.op for event in trace.of(0))
        hops = size - 1
        assert messages["send"] == hops * (3 if backward else 1)
        assert (messages["all_gather"], messages["reduce_scatter"]) == (1 + backward, backward)
        assert messages["all_to_all"] == 2 * (1 + backward)


# ------------------------------------------------------------------------------------------------


def one_layer(attention, make_split, tokens, **sizes):
    split = make_split(tokens, dist.get_world_size())
    leaves = inputs(split, **sizes)
    gradient = torch.ones_like(leaves[0])
    attention(*leaves, split).backward(gradient)


def test_messages_are_under_way_while_blocks_are_computed():
    size = 4
    trace = collect(one_layer, size, (ring_attention, zigzag_split, 32), {"kv_heads": 2}).trace
    for rank in range(size):
        sends = [event for event in trace.of(rank) if event.op == "send"]
        labels = sorted((e for e in trace.labels if e.rank == rank), key=lambda e: e.start)
        forward = [e for e in labels if e.name.startswith("attention to")]
        backward = [e for e in labels if e.name.startswith("gradients for")]
        owners = [(rank - step) % size for step in range(size)]
        assert [e.name.split()[-1] for e in forward] == [str(owner) for owner in owners]
        keys, (again, sums) = sends[: size - 1], _by_kind(sends[size - 1 :], trace)
        assert len(again) == len(sums) == size - 1
        for work, message in ((forward, keys), (backward, again)):
            for step, send in enumerate(message):
                assert send.issued < work[step].start < work[step].end < send.waited
        for step, send in enumerate(sums, start=1):
            assert send.issued > backward[step].end
            assert step + 1 == size or send.waited > backward[step + 1].end


def _by_kind(sends, trace):
    """Backward a rank sends keys, keys, then sums of gradients and keys in turn, at last sums."""
    inside = [any("gradients" in span for span in event.spans) for event in sends]
    assert not any(inside)  # nothing is sent in the middle of a block
    keys = [sends[0], *sends[1:-1:2]]
    return keys, [event for event in sends if event not in keys]


def blocks_computed(make_split):
    """How many blocks each pass of the ring computes, and of how many pairs."""
    from course_lib.techniques.context_parallel import local_attention

    seen, attend = [], local_attention.attend

    def counting(q, k, v, mask, scale):
        seen.append(q.shape[2] * k.shape[2])
        return attend(q, k, v, mask, scale)

    local_attention.attend = counting
    one_layer(ring_attention, make_split, 32, kv_heads=HEADS)
    return seen


def test_blocks_that_nobody_sees_are_not_computed():
    size, whole = 4, 8 * 8
    for rank, seen in enumerate(collect(blocks_computed, size, (plain_split,), observe=False)):
        assert seen == [whole] * (rank + 1)
    for seen in collect(blocks_computed, size, (zigzag_split,), observe=False):
        assert seen == [whole] + [whole // 2] * (size - 1)  # its own triangle, half of every other


MEMORY = {
    ring_attention: lambda ranks, *sizes: ring_memory(*sizes),
    all_gather_attention: all_gather_memory,
    ulysses_attention: ulysses_memory,
}


@pytest.mark.parametrize(("kv_heads", "dtype"), [(12, torch.float32), (2, torch.bfloat16)])
@pytest.mark.parametrize("attention", MEMORY)
def test_peak_memory_is_the_formula(attention, kv_heads, dtype):
    size, tokens, head = 4, 512, 64
    sizes = {"kv_heads": kv_heads, "head": head, "dtype": dtype}
    arguments = (attention, zigzag_split, tokens)
    peaks = [
        collect(one_layer, size, arguments, sizes, observe="memory").trace.memory().peak
        for _ in range(2)
    ]
    elements = BATCH * tokens // size * head
    wanted = MEMORY[attention](size, elements, HEADS, kv_heads, dtype.itemsize)
    # The thread that has sent a message may let go of it late: of two runs the smaller peak.
    for peak in map(min, *peaks):
        assert peak == pytest.approx(wanted, rel=0.1)
