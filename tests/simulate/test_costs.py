"""The costs agree with a count of messages and bytes, with each other, and with known limits."""

import math

import pytest

from course_lib.simulate import costs

ALPHA, BETA, GAMMA = 50e-6, 0.8e-9, 0.1e-9
EVERY_ALL_REDUCE = (
    costs.gather_broadcast_all_reduce,
    costs.tree_all_reduce,
    costs.ring_all_reduce,
    costs.recursive_doubling_all_reduce,
    costs.halving_doubling_all_reduce,
)


def play_ring(p, nbytes):
    """Count the ring step by step: (messages in a row, bytes a rank sends, bytes added)."""
    chunk = nbytes / p
    messages = sent = added = 0
    for half in ("reduce-scatter", "all-gather"):
        for _ in range(p - 1):
            messages += 1
            sent += chunk
            added += chunk if half == "reduce-scatter" else 0
    return messages, sent, added


def play_halving_doubling(p, nbytes):
    """The same for recursive halving and doubling on a power of two."""
    messages = sent = added = 0
    piece = nbytes
    while piece > nbytes / p:  # halving: swap half of what is left
        piece /= 2
        messages, sent, added = messages + 1, sent + piece, added + piece
    while piece < nbytes:  # doubling: swap all that is there
        messages, sent = messages + 1, sent + piece
        piece *= 2
    return messages, sent, added


@pytest.mark.parametrize("p", [1, 2, 3, 4, 5, 8, 64])
def test_ring_is_what_playing_it_counts(p):
    messages, sent, added = play_ring(p, 1e6)
    played = messages * ALPHA + sent * BETA + added * GAMMA
    assert costs.ring_all_reduce(p, 1e6, ALPHA, BETA, GAMMA) == pytest.approx(played)


@pytest.mark.parametrize("p", [1, 2, 4, 8, 64])
def test_halving_doubling_is_what_playing_it_counts(p):
    messages, sent, added = play_halving_doubling(p, 1e6)
    played = messages * ALPHA + sent * BETA + added * GAMMA
    assert costs.halving_doubling_all_reduce(p, 1e6, ALPHA, BETA, GAMMA) == pytest.approx(played)


def test_halving_doubling_is_its_two_halves_and_pays_two_tensors_for_a_surplus_rank():
    halves = costs.halving_reduce_scatter(8, 1e6, ALPHA, BETA, GAMMA) + costs.doubling_all_gather(
        8, 1e6, ALPHA, BETA
    )
    assert costs.halving_doubling_all_reduce(8, 1e6, ALPHA, BETA, GAMMA) == pytest.approx(halves)
    # MPICH: (2 floor(lg p) + 2) alpha + (2 (p-1)/p + 2) n beta, at p = 6
    expected = 6 * ALPHA + (2 * 5 / 6 + 2) * 1e6 * BETA
    assert costs.halving_doubling_all_reduce(6, 1e6, ALPHA, BETA) == pytest.approx(expected)


@pytest.mark.parametrize("cost", EVERY_ALL_REDUCE, ids=lambda cost: cost.__name__)
def test_one_rank_pays_nothing_and_two_ranks_have_known_prices(cost):
    assert cost(1, 1e6, ALPHA, BETA, GAMMA) == 0
    rounds = 1 if cost is costs.recursive_doubling_all_reduce else 2
    tensors = 1 if cost in EVERY_ALL_REDUCE[2:] else 2  # two halves, or one swap of the whole
    assert cost(2, 1e6, ALPHA, BETA) == pytest.approx(rounds * ALPHA + tensors * 1e6 * BETA)


@pytest.mark.parametrize("p", [2, 3, 4, 8, 100])
def test_no_algorithm_moves_less_than_patarasuk_and_yuans_bound(p):
    bound = 2 * (p - 1) / p * 1e6 * BETA
    assert costs.ring_all_reduce(p, 1e6, 0.0, BETA) == pytest.approx(bound)
    for cost in (costs.gather_broadcast_all_reduce, costs.tree_all_reduce):
        assert cost(p, 1e6, 0.0, BETA) >= bound
    assert costs.halving_doubling_all_reduce(p, 1e6, 0.0, BETA) >= bound * (1 - 1e-12)


def test_crossover_is_where_ring_and_tree_meet():
    size = costs.crossover(costs.ring_all_reduce, costs.tree_all_reduce, 16, ALPHA, BETA)
    ring, tree = (
        cost(16, size, ALPHA, BETA) for cost in (costs.ring_all_reduce, costs.tree_all_reduce)
    )
    assert ring == pytest.approx(tree)
    assert costs.ring_all_reduce(16, size / 2, ALPHA, BETA) > costs.tree_all_reduce(
        16, size / 2, ALPHA, BETA
    )
    assert costs.ring_all_reduce(16, size * 2, ALPHA, BETA) < costs.tree_all_reduce(
        16, size * 2, ALPHA, BETA
    )


def test_crossover_is_infinite_where_one_algorithm_is_never_slower():
    lines = costs.ring_all_reduce, costs.halving_doubling_all_reduce
    assert costs.crossover(*lines, 16, ALPHA, BETA) == math.inf


def test_bus_bandwidth_undoes_the_algorithm_at_every_world_size():
    for p in (2, 4, 64):
        seconds = costs.ring_all_reduce(p, 1e9, 0.0, BETA)
        assert costs.bus_bandwidth("all_reduce", p, 1e9, seconds) == pytest.approx(1 / BETA)
        seconds = costs.ring_all_gather(p, 1e9, 0.0, BETA)
        assert costs.bus_bandwidth("all_gather", p, 1e9, seconds) == pytest.approx(1 / BETA)
    with pytest.raises(ValueError, match="'barrier'"):
        costs.bus_bandwidth("barrier", 2, 1.0, 1.0)


@pytest.mark.parametrize(
    "cost",
    [
        costs.recursive_doubling_all_reduce,
        costs.halving_reduce_scatter,
        costs.doubling_all_gather,
    ],
    ids=lambda cost: cost.__name__,
)
def test_formulas_for_powers_of_two_refuse_other_world_sizes(cost):
    with pytest.raises(ValueError, match="p = 6"):
        cost(6, 1e6, ALPHA, BETA)
