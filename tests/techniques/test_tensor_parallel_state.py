"""Random streams that agree and differ, state for any number of ranks, and what is refused."""

import io

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from course_lib.models import TinyGPT
from course_lib.ranks import RankError, collect
from course_lib.techniques.pipeline.stage import Stage
from course_lib.techniques.tensor_parallel import (
    ColumnParallelLinear,
    Dropout,
    ParallelAttention,
    ParallelBlock,
    ParallelMLP,
    RowParallelLinear,
    TensorParallelGPT,
    VocabParallelEmbedding,
    gather_whole,
    load_sharded,
    load_whole,
    merge,
    separate_stream,
    sharded_state,
    vocab_parallel_loss,
)

TOKENS, WIDTH, HEADS, VOCAB = 12, 24, 12, 13


def gpt(**options):
    return TensorParallelGPT(VOCAB, TOKENS, layers=2, hidden=WIDTH, heads=HEADS, **options)


def masks():
    """Which elements are dropped: where all have the tensor, where each has a part, afterwards."""
    torch.manual_seed(0)
    rank, ones = dist.get_rank(), torch.ones(64, 64)
    whole, part = Dropout(0.25)(ones), Dropout(0.25, rank=rank)(ones)
    return whole, part, torch.rand(3)


def test_masks_agree_where_tensors_are_whole_and_differ_where_they_are_split():
    results = list(collect(masks, 3))
    for whole, _, after in results:
        assert torch.equal(whole, results[0][0])
        assert torch.equal(after, results[0][2])
    parts = [part for _, part, _ in results]
    for i, part in enumerate(parts):
        assert part.count_nonzero() / part.numel() == pytest.approx(0.75, abs=0.03)
        assert part.max().item() == pytest.approx(1 / 0.75)
        for other in parts[i + 1 :]:
            both = ((part > 0) & (other > 0)).double().mean()
            assert both == pytest.approx(0.75**2, abs=0.03)  # as independent masks would


def test_dropout_stands_still_in_evaluation_and_keeps_a_byte_an_element():
    x, kept = torch.ones(8, 8, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        Dropout(0.5)(x)
    assert [t.dtype for t in kept if t.dim()] == [torch.bool]
    assert Dropout(0.5).eval()(x) is x
    with pytest.raises(ValueError, match=r"1\.5"):
        Dropout(1.5)


def trained_with_dropout(sequence):
    """Output and input gradient of a block with dropout everywhere; and where it runs twice."""
    torch.manual_seed(0)
    block = ParallelBlock(WIDTH, HEADS, dropout=0.5, sequence_parallel=sequence).double()
    x = torch.randn(2, TOKENS // (dist.get_world_size() if sequence else 1), WIDTH).double()
    found = []
    for recompute in (False, True):
        torch.manual_seed(1)
        stage = Stage(block, recompute=recompute)
        y = stage.forward(0, x.clone().requires_grad_())
        found.append([y.detach(), stage.backward(0, torch.ones_like(y))])
    return found


@pytest.mark.parametrize("sequence", [False, True])
def test_a_block_with_dropout_agrees_between_ranks_and_can_be_recomputed(sequence):
    results = list(collect(trained_with_dropout, 2, (sequence,), timeout=60))
    for plain, again in results:
        assert all(map(torch.equal, plain, again))
    # With sequence parallelism the ranks have other masks; their tokens are equal here.
    assert torch.equal(results[0][0][0], results[1][0][0]) is not sequence


def initial():
    torch.manual_seed(7)
    attention = ParallelAttention(WIDTH, HEADS, kv_heads=2)
    return dict(gpt().state_dict()), attention.key.weight.detach()


def test_initial_values_agree_where_whole_and_differ_where_split():
    results = list(collect(initial, 4))
    states = [state for state, _ in results]
    split = [n for n, t in states[0].items() if any(s[n].shape != t.shape for s in states)]
    assert split == ["embedding.tokens.weight", "head.projection.weight"]  # 13 symbols: uneven
    for name in ("blocks.0.attention.query.weight", "blocks.1.mlp.down.weight"):
        assert not torch.equal(states[0][name], states[1][name])
        together = torch.cat([state[name].flatten() for state in states])
        assert together.std().item() == pytest.approx(0.02, rel=0.1)
    for name in ("embedding.positions.weight", "head.norm.weight", "blocks.0.mlp.down.bias"):
        assert all(torch.equal(state[name], states[0][name]) for state in states)
    keys = [key for _, key in results]
    assert torch.equal(keys[0], keys[1])  # they hold the same key head
    assert torch.equal(keys[2], keys[3])
    assert not torch.equal(keys[0], keys[2])


def test_numbers_inside_a_stream_depend_on_its_rank_and_leave_the_others_alone():
    def numbers(rank):
        torch.manual_seed(3)
        before = torch.rand(2)
        with separate_stream(rank):
            inside = torch.rand(2)
        return before, inside, torch.rand(2)

    one, same, other = numbers(0), numbers(0), numbers(1)
    assert all(map(torch.equal, one, same))
    assert [torch.equal(a, b) for a, b in zip(one, other, strict=True)] == [True, False, True]


# ------------------------------------------------------------------------------------------------


def save(tied):
    torch.manual_seed(dist.get_world_size())
    model = gpt(tied=tied, kv_heads=2)
    file = io.BytesIO()
    torch.save(sharded_state(model), file)
    return file.getvalue(), gather_whole(model)


def load(whole, tied):
    model = gpt(tied=tied, kv_heads=2)
    load_whole(model, whole)
    first = gather_whole(model)
    file = io.BytesIO()
    torch.save(sharded_state(model), file)
    again = gpt(tied=tied, kv_heads=2)
    file.seek(0)
    load_sharded(again, torch.load(file, weights_only=True))
    return first, gather_whole(again)


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4), (1, 4), (4, 1)])
@pytest.mark.parametrize("tied", [False, True])
def test_what_t_ranks_saved_can_be_loaded_by_another_number(before, after, tied):
    saved = list(collect(save, before, (tied,), timeout=60))
    states = [torch.load(io.BytesIO(file), weights_only=True) for file, _ in saved]
    whole = merge(states[::-1])
    for _, gathered in saved:
        assert gathered.keys() == whole.keys()
        assert all(torch.equal(gathered[name], whole[name]) for name in whole)
    for found in collect(load, after, (whole, tied), timeout=60):
        for state in found:
            assert all(torch.equal(state[name], whole[name]) for name in whole)


def load_from_one_process():
    torch.manual_seed(0)
    whole = TinyGPT(VOCAB, TOKENS, layers=2, hidden=WIDTH, heads=HEADS)
    model = gpt()
    load_whole(model, whole.state_dict())
    back = TinyGPT(VOCAB, TOKENS, layers=2, hidden=WIDTH, heads=HEADS)
    back.load_state_dict(gather_whole(model))
    return all(map(torch.equal, whole.state_dict().values(), back.state_dict().values()))


def test_to_one_process_and_back():
    assert list(collect(load_from_one_process, 3)) == [True] * 3


# ------------------------------------------------------------------------------------------------


def refused(what):
    """Every rank tries it; the trace shows whether anything was sent before."""
    size, rank = dist.get_world_size(), dist.get_rank()
    sequence = ParallelMLP(WIDTH, sequence_parallel=True) if size == 2 else None
    targets = torch.zeros(2, TOKENS, dtype=torch.long)
    saved = {"size": 4, "rank": rank, "shares": {}, "tensors": {}}
    attempts = {
        "columns": lambda: ColumnParallelLinear(6, 9),
        "rows": lambda: RowParallelLinear(9, 6),
        "input": lambda: RowParallelLinear(8, 6)(torch.ones(2, 8)),
        "mlp": lambda: ParallelMLP(5, inner=7),
        "few heads": lambda: ParallelAttention(12, 1),
        "heads": lambda: ParallelAttention(12, 3),
        "hidden": lambda: ParallelAttention(10, 4),
        "kv heads": lambda: ParallelAttention(WIDTH, 12, kv_heads=3),
        "shared heads": lambda: ParallelAttention(WIDTH, 4, kv_heads=3),
        "vocabulary": lambda: VocabParallelEmbedding(1, 6),
        "symbol": lambda: VocabParallelEmbedding(10, 6)(targets + 10),
        "logits": lambda: vocab_parallel_loss(torch.ones(2, TOKENS, VOCAB), targets, VOCAB),
        "targets": lambda: vocab_parallel_loss(torch.ones(2, TOKENS, 5), targets[:, 1:], 10),
        "label": lambda: vocab_parallel_loss(torch.ones(2, TOKENS, 5), targets - 7, 10),
        "tokens": lambda: sequence.down(torch.ones(2, 11, 2 * WIDTH)),
        "another t": lambda: load_sharded(gpt(), saved),
        "another rank": lambda: load_sharded(gpt(), saved | {"size": 2, "rank": 1 - rank}),
        "whole shapes": lambda: load_whole(gpt(), sharded_state(gpt())["tensors"]),
        "names": lambda: load_whole(gpt(), {"weight": torch.ones(1)}),
    }
    attempts[what]()


@pytest.mark.parametrize(
    ("what", "numbers"),
    [
        ("columns", ("9 columns", "2 equal parts")),
        ("rows", ("9 rows", "2 equal parts")),
        ("input", ("should be 4", "is 8")),
        ("mlp", ("7 columns", "2 equal parts")),
        ("few heads", ("1 attention heads are fewer than", "2 ranks")),
        ("heads", ("3 attention heads", "2 ranks")),
        ("hidden", ("10", "4 equal heads")),
        ("kv heads", ("3 key/value heads and 2 ranks",)),
        ("shared heads", ("4 query heads", "3 key/value heads")),
        ("vocabulary", ("1 symbols", "2 ranks")),
        ("symbol", ("10 to 10", "vocabulary of 10")),
        ("logits", ("should be", "is 13")),
        ("targets", ("(2, 12, 5)", "(2, 11)")),
        ("label", ("-7", "vocabulary of 10")),
        ("tokens", ("11 tokens", "2 equal parts")),
        ("another t", ("4 ranks", "group has 2")),
        ("another rank", ("rank 1", "rank 0")),
        ("whole shapes", ("(13, 24)", "(6, 24)")),
        ("names", ("1 parameters", "embedding.tokens.weight")),
    ],
)
def test_refused_with_both_numbers_before_anything_is_sent(what, numbers):
    with pytest.raises(RankError) as caught:
        collect(refused, 2, (what,))
    report = caught.value.report
    assert "ValueError" in report
    for number in numbers:
        assert number in report, report
    assert caught.value.trace.traffic().sent == [0, 0]


def wrong_group():
    pair = dist.new_group([0, 1])
    if dist.get_rank() == 2:
        ColumnParallelLinear(4, 4, pair)


def test_a_rank_outside_the_group_is_told_so():
    with pytest.raises(RankError, match="rank 2 of 3 is not in the group"):
        collect(wrong_group, 3)


def test_merging_needs_the_state_of_every_rank():
    states = [torch.load(io.BytesIO(f), weights_only=True) for f, _ in collect(save, 2, (False,))]
    for wrong in ([], states[:1], [states[0], states[0]]):
        with pytest.raises(ValueError, match=str(len(wrong))):
            merge(wrong)


def in_a_subgroup():
    """Two pairs, each with a layer of its own."""
    rank = dist.get_rank()
    pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    torch.manual_seed(rank % 2)
    layer = ParallelMLP(8, pairs[rank % 2])
    return layer(torch.ones(1, 8)), gather_whole(layer, pairs[rank % 2])


def test_groups_side_by_side():
    results = list(collect(in_a_subgroup, 4))
    for rank, (y, whole) in enumerate(results):
        h = F.gelu(F.linear(torch.ones(1, 8), whole["up.weight"], whole["up.bias"]))
        wanted = F.linear(h, whole["down.weight"], whole["down.bias"])
        torch.testing.assert_close(y, wanted)
        assert torch.equal(y, results[(rank + 2) % 4][0])
    assert not torch.equal(results[0][0], results[1][0])


def test_a_module_that_splits_nothing_is_left_as_it_is():
    layer = nn.Linear(2, 2)
    load_whole(layer, {"weight": torch.eye(2), "bias": torch.ones(2)})
    assert torch.equal(layer.weight, torch.eye(2))
