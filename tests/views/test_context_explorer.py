"""The picture of a causal ring counts what is so, in colour and in words."""

import pytest

from course_lib.views.context_explorer import (
    SPLITS,
    TOKENS,
    context_explorer,
    context_ring,
    idle_share,
)
from course_lib.views.context_explorer import _ring as ring_of
from tests.views.reading import Moved

ALL_PAIRS = TOKENS * (TOKENS + 1) // 2


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6])
def test_every_pair_of_the_triangle_is_computed_once(split, ranks):
    ring = ring_of(split, ranks, 1, None)
    assert sorted(ring.owner) == sorted(list(range(ranks)) * (TOKENS // ranks))
    assert sum(map(sum, ring.work())) == ALL_PAIRS


def test_a_plain_split_is_idle_nearly_half_of_the_time_and_zigzag_hardly():
    plain, zigzag, striped = (idle_share(ring_of(s, 4, 1, None).work()) for s in SPLITS)
    assert plain == pytest.approx(1 - ALL_PAIRS / (4 * (21 + 3 * 36)))
    assert zigzag == 0
    assert 0 < striped < 0.15


def test_a_documents_tokens_see_only_it():
    work = ring_of("plain", 4, 3, None).work()
    assert sum(map(sum, work)) == sum(size * (size + 1) // 2 for size in (5, 11, 8))


def test_the_words_say_who_holds_what_and_the_work_of_each_step():
    lines = context_ring("zigzag", 2).text.splitlines()
    assert lines[0] == "zigzag split of 24 tokens over 2 ranks: 0% idle"
    assert "0 to 5 and 18 to 23" in lines[2]
    assert lines[2].split()[:5] == ["rank", "0", "78", "72", "150"]


def test_ones_own_split_is_offered_and_asked():
    explorer = context_explorer(own=SPLITS["striped"])
    move = Moved(explorer)
    assert "yours" in move.offered("split")
    assert (
        move(split="yours").text.splitlines()[1:] == (move(split="striped").text.splitlines()[1:])
    )
    assert "yours" not in Moved(context_explorer()).offered("split")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"step": 4}, "steps 0 to 3, not 4"),
        ({"split": "yours"}, "'yours' is none of plain, zigzag, striped"),
        ({"ranks": 5}, "no 10 equal chunks"),
        ({"split": "yours", "own": lambda length, n, rank: [rank]}, "no rank holds the token 4"),
    ],
)
def test_what_cannot_be_is_refused_with_both_numbers(arguments, words):
    with pytest.raises(ValueError, match=words):
        context_ring(**arguments)


def test_only_the_pairs_of_one_step_are_in_colour():
    svg = context_ring("plain", 4, step=1).svg()
    pairs = [part for part in svg.split("<g class='b'") if "query" in part]
    coloured = [part for part in pairs if "var(--pale)" not in part]
    assert coloured
    assert all("<title>step 1:" in part for part in coloured)
