"""A GPT with cut sequences is that of one process; the loss counts tokens, wherever they are."""

import pytest
import torch
import torch.distributed as dist

from course_lib.models import TinyGPT
from course_lib.models.tiny_gpt import token_loss
from course_lib.ranks import collect
from course_lib.techniques.context_parallel import (
    ContextAxis,
    ContextParallelGPT,
    all_gather_attention,
    average_gradients,
    packed_documents,
    plain_split,
    ring_attention,
    striped_split,
    ulysses_attention,
    zigzag_split,
)
from course_lib.techniques.context_parallel.loss import IGNORED, context_parallel_loss

VOCAB, TOKENS = 11, 19
LENGTHS = [
    [5, 9, 2],
    [19],
]  # of two samples' documents; 3 tokens of the first are padding
EXACT = 1e-10


def gpt(tied=False):
    torch.manual_seed(0)
    heads = 12  # for Ulysses on 1 to 4 ranks
    return TinyGPT(VOCAB, TOKENS, layers=2, hidden=24, heads=heads, tied=tied).double()


def batch():
    random = torch.Generator().manual_seed(1)
    tokens, targets = torch.randint(VOCAB, (2, 2, TOKENS), generator=random)
    targets[:, :6] = IGNORED  # nothing counts on the first rank of a plain split over 4
    return tokens, targets


def documents():
    return torch.stack([packed_documents(lengths, TOKENS) for lengths in LENGTHS])


def alone(model, tokens, targets):
    """The mean loss where each document is a sample of its own."""
    logits, of = [], []
    for sample, lengths in enumerate(LENGTHS):
        for number in range(len(lengths)):
            at = slice(sum(lengths[:number]), sum(lengths[: number + 1]))
            logits.append(model(tokens[sample : sample + 1, at])[0])
            of.append(targets[sample, at])
    return token_loss(torch.cat(logits), torch.cat(of))


def gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def every_gpt():
    found = {}
    tokens, targets = batch()
    for packed in (False, True):
        where = documents() if packed else None
        if packed:
            targets = targets.masked_fill(where < 0, IGNORED)
        for attention in (ring_attention, all_gather_attention, ulysses_attention):
            for make_split in (plain_split, zigzag_split, striped_split):
                whole = gpt(tied=make_split is striped_split)
                loss = alone(whole, tokens, targets) if packed else whole.loss(tokens, targets)
                wanted = gradients(whole, loss)
                cut = ContextParallelGPT(whole, make_split=make_split, attention=attention)
                ours = cut.loss(tokens, targets, where)
                own = gradients(cut, ours)
                average_gradients(cut)
                assert list(own) == list(wanted)
                found[packed, attention.__name__, make_split.__name__] = max(
                    (loss - ours).abs().item(),
                    *((own[name] - wanted[name]).abs().max().item() for name in own),
                )
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_loss_and_gradients_are_those_of_one_process_and_of_each_document_alone(size):
    for found in collect(every_gpt, size, observe=False, timeout=60):
        assert len(found) == 18
        assert max(found.values()) < EXACT, found


def losses_of_uneven_parts():
    """The first rank has one target that counts, the second none, the last all."""
    n, rank = dist.get_world_size(), dist.get_rank()
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(n, 2, 3, VOCAB, generator=random)
    targets = torch.randint(VOCAB, (n, 2, 3), generator=random)
    targets[: n - 1] = IGNORED
    targets[0, 1, 2] = 5
    own, whole = (x.clone().requires_grad_() for x in (logits[rank], logits))
    loss = context_parallel_loss(own, targets[rank])
    loss.backward()
    token_loss(whole, targets).backward()
    torch.testing.assert_close(own.grad, n * whole.grad[rank])
    return loss.item(), token_loss(logits, targets).item()


@pytest.mark.parametrize("size", [1, 3])
def test_the_loss_is_a_mean_over_tokens_and_not_over_ranks(size):
    results = collect(losses_of_uneven_parts, size, observe=False)
    for loss, wanted in results:
        assert loss == pytest.approx(wanted)
        assert loss == results[0][0]


# ------------------------------------------------------------------------------------------------


def attempts():
    """What is said to arguments that do not fit, and nothing is sent."""
    split, q = zigzag_split(8, 2), torch.zeros(1, 6, 4, 2)
    kv, three = torch.zeros(1, 2, 4, 2), torch.zeros(1, 3, 4, 2)
    said = []
    for attempt in (
        lambda: ring_attention(q, kv, kv, zigzag_split(8, 3)),
        lambda: ring_attention(q[:, :, :3], kv, kv, split),
        lambda: ring_attention(q, kv, kv[:, :1], split),
        lambda: ring_attention(q[:, :5], kv, kv, split),
        lambda: ring_attention(q, kv, kv.double(), split),
        lambda: ring_attention(q, kv, kv, split, documents=torch.zeros(7)),
        lambda: ulysses_attention(q[:, :3], kv[:, :1], kv[:, :1], split),
        lambda: ulysses_attention(q, three, three, split),
        lambda: ContextAxis().attend(q, kv, kv),
    ):
        try:
            attempt()
            said.append("nothing")
        except ValueError as error:
            said.append(str(error))
    return said


def test_errors_name_the_numbers():
    results = collect(attempts, 2)
    assert results.trace.traffic().sent == [0, 0]
    for said, wanted in zip(
        results[1],
        (
            "over 3 ranks, the group has 2",
            "rank 1 holds 4 tokens, and its queries have shape (1, 6, 3, 2)",
            "(1, 2, 4, 2) and values of (1, 1, 4, 2)",
            "5 query heads cannot share 2 heads",
            "keys torch.float32 and values torch.float64",
            "documents of 7 tokens, for a sequence of 8",
            "3 query heads do not divide over 2 ranks",
            "3 heads of keys and values neither divide over 2 ranks",
            "call begin first",
        ),
        strict=True,
    ):
        assert wanted in said
