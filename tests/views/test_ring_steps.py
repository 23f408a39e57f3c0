"""The ring picture shows a ring that is right, and says the same in words."""

import itertools
import re

import pytest

from course_lib.views.ring_steps import LARGEST, play_ring, ring_steps


@pytest.mark.parametrize("n", range(1, LARGEST + 1))
def test_every_chunk_ends_complete_after_two_rounds(n):
    steps = play_ring(n)
    complete = int("1" * n)
    assert len(steps) == 1 + 2 * (n - 1)
    assert steps[0].sums == tuple((10**rank,) * n for rank in range(n))
    assert steps[-1].sums == ((complete,) * n,) * n


@pytest.mark.parametrize("n", range(2, LARGEST + 1))
def test_after_half_of_the_steps_rank_r_alone_holds_chunk_r(n):
    complete = int("1" * n)
    middle = play_ring(n)[n - 1]
    for rank, row in enumerate(middle.sums):
        assert [chunk for chunk, value in enumerate(row) if value == complete] == [rank]


@pytest.mark.parametrize("n", range(2, LARGEST + 1))
def test_each_step_moves_one_chunk_from_the_left_and_touches_nothing_else(n):
    steps = play_ring(n)
    for before, after in itertools.pairwise(steps):
        assert sorted(after.received) == list(range(n))  # all chunks move, each somewhere else
        for rank, chunk in enumerate(after.received):
            from_left = before.sums[rank - 1][chunk]
            own = before.sums[rank][chunk] if after.name.startswith("reduce") else 0
            assert after.sums[rank][chunk] == from_left + own
            others = [c for c in range(n) if c != chunk]
            assert all(after.sums[rank][c] == before.sums[rank][c] for c in others)


def test_text_has_one_line_a_step_and_marks_what_arrived():
    title, header, *lines = ring_steps(3).text.splitlines()
    assert title.startswith("Ring of 3 ranks")
    assert header.split(" | ")[2].strip() == "rank 2"
    assert [line[:18].strip() for line in lines] == [step.name for step in play_ring(3)]
    assert lines[1] == "reduce-scatter 1     1 *101    1 |   10   10  *11 | *110  100  100"


def test_more_ranks_than_fit_are_refused():
    with pytest.raises(ValueError, match=f"1 to {LARGEST} ranks, not {LARGEST + 1}"):
        ring_steps(LARGEST + 1)


def test_there_is_a_table_and_a_frame_for_each_step():
    svg = ring_steps(3).svg()
    names = [step.name for step in play_ring(3)]
    assert re.findall(r"<g class='frame' style='display:none' data-name='(.*?)'>", svg) == names
    still, *frames = re.split(r"<g class='frame'", svg)
    assert [still.count(f">{name}<") for name in names] == [1] * len(names)
    assert [frame.count(">chunk ") for frame in frames] == [0, 3, 3, 3, 3]
