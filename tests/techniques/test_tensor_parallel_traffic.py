"""What tensor parallelism sends, to the byte, and what it keeps for backward."""

import pytest
import torch
import torch.distributed as dist

from course_lib.models import TinyGPT
from course_lib.ranks import collect
from course_lib.techniques.tensor_parallel import (
    ParallelAttention,
    ParallelBlock,
    TensorParallelGPT,
    sum_replicated_gradients,
    vocab_parallel_loss,
)

BATCH, TOKENS, WIDTH, HEADS, VOCAB = 2, 12, 24, 12, 24
ELEMENT = 4  # bytes
ACTIVATION = BATCH * TOKENS * WIDTH * ELEMENT  # bsh


def block_pass(sequence, layers=1, backward=True, dropout=0.0):
    """Forward and backward through blocks; bytes that autograd holds in between."""
    torch.manual_seed(0)
    blocks = [
        ParallelBlock(WIDTH, HEADS, sequence_parallel=sequence, dropout=dropout)
        for _ in range(layers)
    ]
    tokens = TOKENS // dist.get_world_size() if sequence else TOKENS
    x = torch.randn(BATCH, tokens, WIDTH, requires_grad=True)
    kept = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes(), storage  # alive, so no address comes twice
        return tensor

    weights = {p.untyped_storage().data_ptr() for b in blocks for p in b.parameters()}
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        y = x
        for block in blocks:
            y = block(y)
    if backward:
        y.sum().backward()
    return sum(nbytes for pointer, (nbytes, _) in kept.items() if pointer not in weights)


def all_reduces(trace, rank):
    return [event for event in trace.of(rank) if event.op == "all_reduce"]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_two_all_reduces_forward_and_two_backward_in_every_layer(size):
    forward = collect(block_pass, size, (False, 2, False)).trace
    both = collect(block_pass, size, (False, 2)).trace
    for rank in range(size):
        assert [e.nbytes for e in all_reduces(forward, rank)] == [ACTIVATION] * 4
        assert [e.nbytes for e in all_reduces(both, rank)] == [ACTIVATION] * 8
        assert forward.traffic().sent[rank] == 2 * 4 * ACTIVATION * (size - 1) // size
        assert both.traffic().sent[rank] == 2 * 8 * ACTIVATION * (size - 1) // size
    assert set(both.traffic().by_operation) == {"all_reduce"}
    assert not both.warnings


@pytest.mark.parametrize("size", [2, 3, 4])
def test_sequence_parallelism_moves_the_same_bytes_and_gathers_once_more_behind_the_backward(size):
    trace = collect(block_pass, size, (True,)).trace
    part = ACTIVATION * (size - 1) // size
    sent = {op: bytes_[0] for op, (bytes_, _) in trace.traffic().by_operation.items()}
    # 4 all-gathers and 4 reduce-scatters for 4 all-reduces; 2 more gathers for the inputs of the
    # column-parallel layers, of which only the own tokens were kept.
    assert sent == {"all_gather": (4 + 2) * part, "reduce_scatter": 4 * part}
    assert not trace.warnings


@pytest.mark.parametrize("size", [2, 4])
def test_kept_activations_are_those_of_korthikanti_table_2(size):
    """With fused attention and without dropout: 2-byte terms of sbh(10 + 24/t), or sbh 34/t.

    Leave out the masks (1 byte: two whole, none in the attention) and double the rest for 4 bytes:
    sbh(16 + 48/t) and sbh 64/t. What the fused attention keeps of its rows and a norm of its tokens
    is less than 4 numbers per token and head.
    """
    sbh = BATCH * TOKENS * WIDTH
    for sequence, wanted in ((False, sbh * (16 + 48 / size)), (True, sbh * 64 / size)):
        for kept in collect(block_pass, size, (sequence,)):
            extra = kept - wanted
            assert 0 <= extra <= 4 * ELEMENT * BATCH * TOKENS * (HEADS / size + 2), (sequence, kept)


# ------------------------------------------------------------------------------------------------


def loss_pass():
    logits = torch.randn(BATCH, TOKENS, VOCAB // dist.get_world_size(), requires_grad=True)
    targets = torch.randint(VOCAB, (BATCH, TOKENS), generator=torch.Generator().manual_seed(0))
    vocab_parallel_loss(logits, targets, VOCAB).backward()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_cross_entropy_moves_three_numbers_a_token(size):
    trace = collect(loss_pass, size).trace
    numbers = 3 * BATCH * TOKENS
    assert trace.traffic().sent == [2 * numbers * ELEMENT * (size - 1) // size] * size


def gpt_pass(sequence):
    torch.manual_seed(0)
    whole = TinyGPT(VOCAB, TOKENS, layers=2, hidden=WIDTH, heads=HEADS)
    model = TensorParallelGPT.from_model(whole, sequence_parallel=sequence)
    tokens = torch.randint(VOCAB, (2, BATCH, TOKENS), generator=torch.Generator().manual_seed(0))
    model.loss(*tokens).backward()
    if sequence:
        sum_replicated_gradients(model)


def test_a_whole_gpt_adds_one_all_reduce_for_the_embedding_and_one_for_the_head():
    size = 4
    traffic = collect(gpt_pass, size, (False,)).trace.traffic()
    activations = (2 * 4 + 2) * ACTIVATION
    loss = 3 * BATCH * TOKENS * ELEMENT
    assert traffic.sent == [2 * (activations + loss) * (size - 1) // size] * size


def test_a_sequence_parallel_gpt_adds_the_gradients_of_whole_parameters_in_one_message():
    size = 4
    trace = collect(gpt_pass, size, (True,)).trace
    traffic = trace.traffic()
    norms, biases, positions = (2 * 2 + 1) * 2 * WIDTH, 2 * 2 * WIDTH, TOKENS * WIDTH
    numbers = norms + biases + positions + 3 * BATCH * TOKENS
    reduced, _ = traffic.by_operation["all_reduce"]
    assert reduced == [2 * numbers * ELEMENT * (size - 1) // size] * size
    assert len(all_reduces(trace, 0)) == 3


def grouped_pass():
    torch.manual_seed(0)
    attention = ParallelAttention(WIDTH, HEADS, kv_heads=2)
    x = torch.ones(BATCH, TOKENS, WIDTH, requires_grad=True)
    attention(x).sum().backward()


def test_shared_key_value_heads_add_up_their_gradients_among_those_who_share_them():
    traffic = collect(grouped_pass, 4).trace.traffic()
    head = WIDTH // HEADS
    key_and_value = 2 * (WIDTH + 1) * head * ELEMENT
    shared, _ = traffic.by_operation["send"]
    assert shared == [2 * key_and_value * (2 - 1) // 2] * 4
    assert traffic.matrix[0][1] > traffic.matrix[1][2]  # ranks 0 and 1 share; 1 and 2 do not
