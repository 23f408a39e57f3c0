"""What needs no ranks in context parallelism: splits, masks, merging, one block, angles."""

import itertools

import pytest
import torch

from course_lib.techniques.context_parallel import (
    Seen,
    all_gather_bytes,
    attend,
    merge,
    packed_documents,
    padding_documents,
    plain_split,
    positions_in_documents,
    ring_bytes,
    rotary,
    split_by_positions,
    striped_split,
    ulysses_bytes,
    work,
    zigzag_split,
)
from course_lib.techniques.context_parallel.attention_kernels import (
    attend_backward,
    attend_written_out,
    backward_written_out,
    finite,
)
from course_lib.techniques.context_parallel.merge import nothing_yet

SPLITS = (plain_split, zigzag_split, striped_split)


def held(make_split, tokens, ranks):
    split = make_split(tokens, ranks)
    return [split.positions(rank).tolist() for rank in range(ranks)]


def test_who_holds_what():
    assert held(plain_split, 8, 2) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert held(zigzag_split, 8, 2) == [[0, 1, 6, 7], [2, 3, 4, 5]]
    assert held(striped_split, 8, 2) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert held(zigzag_split, 12, 3) == [[0, 1, 10, 11], [2, 3, 8, 9], [4, 5, 6, 7]]


@pytest.mark.parametrize("make_split", SPLITS)
def test_every_token_is_on_one_rank_and_ranks_differ_by_one(make_split):
    for ranks in range(1, 8):
        for tokens in range(ranks, 40):
            split = make_split(tokens, ranks)
            everywhere = sorted(itertools.chain(*held(make_split, tokens, ranks)))
            assert everywhere == list(range(tokens))
            assert max(split.sizes) - min(split.sizes) <= 1
            whole = torch.randn(2, tokens, 3)
            parts = [split.of(whole, rank) for rank in range(ranks)]
            assert torch.equal(split.join(parts), whole)


@pytest.mark.parametrize("make_split", SPLITS)
def test_a_split_is_known_by_its_positions(make_split):
    for ranks in (1, 2, 3):
        split = make_split(12, ranks)
        positions = [split.positions(rank) for rank in range(ranks)]
        found = split_by_positions(positions)
        assert found.sizes == split.sizes
        assert all(map(torch.equal, map(found.positions, range(ranks)), positions))
    backwards = split_by_positions([torch.tensor([2, 1, 0])])
    assert backwards.positions(0).tolist() == [2, 1, 0]


def test_positions_that_are_no_split_are_refused_with_both_numbers():
    with pytest.raises(ValueError, match="of 4 positions in all, number 2 in order is 1"):
        split_by_positions([torch.tensor([0, 1]), torch.tensor([1, 2])])
    with pytest.raises(ValueError, match="rank 1 of 2 holds no token"):
        split_by_positions([torch.tensor([0]), torch.tensor([])])


def test_zigzag_shares_out_the_causal_work_evenly_and_plain_does_not():
    plain = [sum(steps) for steps in work(plain_split(32, 4))]
    assert plain == [36, 100, 164, 228]
    assert [sum(steps) for steps in work(zigzag_split(32, 4))] == [132] * 4
    striped = [sum(steps) for steps in work(striped_split(32, 4))]
    assert sum(striped) == sum(plain) == 32 * 33 // 2
    assert max(striped) - min(striped) == 24  # T/n for each step to the right
    assert work(plain_split(32, 4))[0] == [36, 0, 0, 0]
    assert work(plain_split(32, 4), causal=False) == [[64] * 4] * 4


@pytest.mark.parametrize("make_split", SPLITS)
def test_work_is_what_a_mask_counts(make_split):
    documents = torch.stack([packed_documents([5, 1, 7], 17), packed_documents([17], 17)])
    split = make_split(17, 3)
    seen = (documents.unsqueeze(-1) == documents.unsqueeze(-2)) & (documents >= 0).unsqueeze(-1)
    seen = seen.tril()
    found = work(split, documents=documents)
    for rank in range(3):
        queries = split.positions(rank)
        for step in range(3):
            keys = split.positions((rank - step) % 3)
            assert found[rank][step] == seen[:, queries][:, :, keys].sum().item()


def test_documents():
    assert packed_documents([3, 2], 6).tolist() == [0, 0, 0, 1, 1, -1]
    assert padding_documents([2, 3], 3).tolist() == [[0, 0, -1], [0, 0, 0]]
    documents = torch.tensor([[0, 0, 0, 1, 1, -1], [4, 4, 2, 2, 2, 2]])
    assert positions_in_documents(documents).tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 0, 1, 2, 3]]


# ------------------------------------------------------------------------------------------------


def drawn(*shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_keys_in_any_portions_give_the_softmax_over_all():
    q, k, v = drawn(1, 2, 3, 4), 40 * drawn(1, 2, 9, 4, seed=1), drawn(1, 2, 9, 4, seed=2)
    scores = q @ k.mT
    for cuts in ((9,), (1, 8), (4, 4, 1), (1,) * 9):
        out, lse = nothing_yet(q)
        for part in range(len(cuts)):
            at = slice(sum(cuts[:part]), sum(cuts[: part + 1]))
            merge(out, lse, *attend(q, k[:, :, at], v[:, :, at], Seen.ALL, 1.0))
        torch.testing.assert_close(out, scores.softmax(-1) @ v)
        torch.testing.assert_close(lse, scores.logsumexp(-1))


def test_no_keys_change_nothing_and_some_replace_nothing():
    nowhere, empty = nothing_yet(drawn(1, 1, 2, 3))
    out, lse = nowhere.clone(), empty.clone()
    merge(out, lse, nowhere, empty)
    assert out.eq(0).all()
    assert lse.isneginf().all()
    some, of_some = drawn(1, 1, 2, 3), drawn(1, 1, 2)
    merge(out, lse, some, of_some)
    assert torch.equal(out, some)
    assert torch.equal(lse, of_some)
    merge(out, lse, nowhere, empty)
    assert torch.equal(out, some)
    assert torch.equal(lse, of_some)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mask", ["all", "triangle", "some"])
def test_the_kernel_does_what_is_written_out(mask, dtype):
    q, k, v, gradient = (drawn(2, 3, 6, 4, dtype=dtype, seed=seed) for seed in range(4))
    seen = drawn(2, 1, 6, 6) > 0
    seen[1, :, 2] = False  # a query that sees nothing
    mask = {"all": Seen.ALL, "triangle": Seen.TRIANGLE, "some": seen}[mask]
    tolerance = {"rtol": 0.02, "atol": 0.02} if dtype == torch.bfloat16 else {}
    out, lse = attend(q, k, v, mask, 0.3)
    torch.testing.assert_close((out, lse), attend_written_out(q, k, v, mask, 0.3), **tolerance)
    torch.testing.assert_close(
        attend_backward(gradient, q, out, lse, k, v, mask, 0.3),
        backward_written_out(gradient, q, out, finite(lse), k, v, mask, 0.3),
        **tolerance,
    )
    if mask is seen:
        assert lse[1, :, 2].isneginf().all()


def test_rotary_scores_depend_on_distances_only():
    q, k = drawn(1, 1, 1, 8), drawn(1, 1, 1, 8, seed=1)

    def score(query, key):
        turned = rotary(q, torch.tensor([query])), rotary(k, torch.tensor([key]))
        return (turned[0] * turned[1]).sum()

    torch.testing.assert_close(score(12, 5), score(7, 0))
    assert (score(12, 5) - score(12, 6)).abs() > 1e-3
    assert torch.equal(rotary(q, torch.tensor([0])), q)
    per_sample = torch.tensor([[3], [4]])
    both = rotary(q.expand(2, -1, -1, -1), per_sample)
    torch.testing.assert_close(both[1:], rotary(q, torch.tensor([4])))


@pytest.mark.parametrize("make_split", SPLITS)
def test_rotary_turns_the_tokens_of_a_rank_as_it_turns_them_in_the_whole(make_split):
    whole, split = drawn(2, 3, 13, 4), make_split(13, 4)
    turned = rotary(whole, torch.arange(13))
    for rank in range(4):
        own = rotary(split.of(whole, rank, dim=2), split.positions(rank))
        assert torch.equal(own, split.of(turned, rank, dim=2))


def test_rotary_far_out_is_exact_enough():
    x = drawn(1, 1, 1, 8, dtype=torch.float32)
    far = torch.tensor([2**20 + 1])
    torch.testing.assert_close(rotary(x, far).double(), rotary(x.double(), far), rtol=0, atol=1e-6)


# ------------------------------------------------------------------------------------------------


def test_bytes_of_equal_parts_are_the_formulas():
    n, batch, tokens, heads, kv_heads, size = 4, 2, 64, 8, 4, 16
    split = zigzag_split(tokens, n)
    for rank in range(n):
        part = (n - 1) * 2 * batch * kv_heads * tokens * size // n  # elements
        for of in (ring_bytes, all_gather_bytes):
            assert of(split, rank, batch, kv_heads, size, 4) == (4 * part, 8 * part)
            assert of(split, rank, batch, kv_heads, size, 2) == (2 * part, 6 * part)
        sent = (n - 1) * batch * tokens * size * (2 * heads + 2 * kv_heads) * 2 // n**2
        assert ulysses_bytes(split, rank, batch, heads, kv_heads, size, 2) == (sent, sent)
    assert ring_bytes(zigzag_split(8, 1), 0, 1, 1, 1, 4) == (0, 0)


@pytest.mark.parametrize(
    ("attempt", "says"),
    [
        (lambda: plain_split(3, 4), "3 tokens are too few for 4 ranks"),
        (lambda: zigzag_split(3, 0), "3 tokens are too few for 0 ranks"),
        (lambda: striped_split(1, 2), "1 tokens are too few for 2 ranks"),
        (lambda: plain_split(6, 2).of(torch.zeros(1, 5), 0), "of 6 tokens, not of 5"),
        (lambda: plain_split(6, 2).join([torch.zeros(1, 2)] * 2), r"\[3, 3\].* have \[2, 2\]"),
        (lambda: packed_documents([3, 4], 6), "of 7 tokens do not fit into 6"),
        (lambda: rotary(torch.zeros(1, 1, 2, 3), torch.arange(2)), "head size of 3"),
        (lambda: rotary(torch.zeros(1, 1, 2, 4), torch.arange(3)), "3 positions, for 2 tokens"),
        (lambda: work(plain_split(6, 2), documents=torch.zeros(5)), "5 tokens, .* of 6"),
    ],
)
def test_errors_name_the_numbers(attempt, says):
    with pytest.raises(ValueError, match=says):
        attempt()
