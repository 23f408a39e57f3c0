"""A deadlock as a picture: who waits for whom, the circle in alarm, and everyone's line."""

import itertools
import re

import pytest

from course_lib.observe import CommEvent, Frame, Trace
from course_lib.views.hang import LARGEST, hang
from tests.views.reading import boxes


def waiting(rank, op, peer, world_size, n=0):
    return CommEvent(
        rank=rank, n=n, op=op, group="0", ranks=tuple(range(world_size)), peer=peer, tag=0,
        nbytes=4, shapes=((1,),), dtype="float32", reduce_op=None, blocking=True, native=False,
        issued=float(n), waited=float(n), where=(Frame("cell.py", 7 + rank, "exchange"),),
    )  # fmt: skip


def arrows(view):
    """Who waits for whom, and whether in the circle."""
    found = re.findall(
        r"<polyline [^>]*style='stroke:var\(--(\w+)\)'[^>]*><title>rank (\d+) waits for rank (\d+)",
        view.svg(),
    )
    return {(int(one), int(other)): ink == "alarm" for ink, one, other in found}


def test_a_circle_is_drawn_in_alarm_and_who_only_waits_for_it_is_not():
    pairs = [(0, 1), (1, 2), (2, 0), (3, 0)]
    view = hang(Trace(4, [waiting(rank, "recv", peer, 4) for rank, peer in pairs]), {})
    assert arrows(view) == {(0, 1): True, (1, 2): True, (2, 0): True, (3, 0): False}
    assert view.text.splitlines() == [
        "rank 0 waits for rank 1",
        "rank 1 waits for rank 2",
        "rank 2 waits for rank 0",
        "rank 3 waits for rank 0",
        "in a circle: 0 -> 1 -> 2 -> 0",
    ]
    assert "ranks 0, 1 and 2 in a circle" in view.picture.title


def test_every_rank_tells_its_operation_and_its_line():
    trace = Trace(3, [waiting(0, "recv", 1, 3)])
    view = hang(trace, {2: "is still running"}, {2: Frame("cell.py", 40, "work")})
    assert [box.hint for box in boxes(view, "rank")] == [
        "rank 0 receives from rank 1\nline 7 of exchange",
        "rank 1 has returned",
        "rank 2 is still running\nline 40 of work",
    ]
    assert arrows(view) == {(0, 1): False}
    waits, returned, runs = boxes(view, "rank")
    assert waits.fill == "pale" != returned.fill == runs.fill
    assert returned.high < runs.high  # as tall as what stands in it


def test_a_chain_of_a_few_stands_in_one_row_from_left_to_right():
    chain = hang(Trace(4, [waiting(rank, "recv", rank + 1, 4) for rank in range(3)]), {})
    cards = boxes(chain, "rank")
    assert len({card.y + card.high / 2 for card in cards}) == 1
    assert all(one.right < other.x for one, other in itertools.pairwise(cards))
    # 2 waits for 0, and 0 for 1: the row that has them beside one another
    other = hang(Trace(3, [waiting(2, "recv", 0, 3), waiting(0, "recv", 1, 3)]), {})
    assert [card.hint[:6] for card in sorted(boxes(other, "rank"), key=lambda card: card.x)] == [
        "rank 1", "rank 0", "rank 2",
    ]  # fmt: skip


@pytest.mark.parametrize("n", [3, 4, 5, 8])
def test_in_a_circle_what_stands_beside_each_other_reads_in_order(n):
    view = hang(Trace(n, [waiting(rank, "recv", (rank + 1) % n, n) for rank in range(n)]), {})
    cards = boxes(view, "rank")
    for _, row in itertools.groupby(
        sorted(cards, key=lambda card: card.y), lambda card: round(card.y)
    ):
        ranks = [card.hint[5] for card in sorted(row, key=lambda card: card.x)]
        assert ranks == sorted(ranks)


def test_arrows_go_from_the_middle_of_a_side_to_the_middle_of_a_side():
    view = hang(Trace(3, [waiting(rank, "recv", (rank + 1) % 3, 3) for rank in range(3)]), {})
    middles = {
        (round(x), round(y))
        for card in boxes(view, "rank")
        for x, y in (
            (card.x - 3, card.y + card.high / 2),
            (card.right + 3, card.y + card.high / 2),
            (card.x + card.wide / 2, card.y - 3),
            (card.x + card.wide / 2, card.y + card.high + 3),
        )
    }
    starts = re.findall(r"<polyline points='([\d.]+),([\d.]+) [^>]*><title>rank", view.svg())
    assert len(starts) == 3
    assert {(round(float(x)), round(float(y))) for x, y in starts} <= middles


def test_a_collective_waits_for_those_who_do_not_call_it():
    trace = Trace(3, [waiting(rank, "all_reduce", None, 3) for rank in (0, 2)])
    view = hang(trace, {})
    assert arrows(view) == {(0, 1): False, (2, 1): False}
    assert view.picture.title == "who waits for whom: ranks 0 and 2 for rank 1"
    assert "rank 0 waits in all_reduce" in boxes(view)[0].hint


def test_two_that_wait_for_each_other_have_an_arrow_each():
    view = hang(Trace(2, [waiting(0, "send", 1, 2), waiting(1, "send", 0, 2)]), {})
    lines = re.findall(r"<polyline points='([^']*)'[^>]*><title>rank", view.svg())
    assert len({line.split()[0].split(",")[1] for line in lines}) == 2


def test_where_nobody_waits_for_anybody_there_is_no_picture():
    assert hang(Trace(2, []), {0: "is still running"}) is None
    assert hang(Trace(2, [waiting(0, "recv", None, 2)]), {}) is None  # from any rank
    many = [waiting(rank, "recv", 0, LARGEST + 1) for rank in range(1, LARGEST + 1)]
    assert hang(Trace(LARGEST + 1, many), {}) is None
