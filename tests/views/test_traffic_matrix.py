"""Who sends to whom, as squares and as a table."""

import re

import pytest

from course_lib.observe import CommEvent, Trace
from course_lib.views.traffic_matrix import traffic_matrix
from tests.views.reading import boxes, places, words


def sends(world_size: int, *messages: tuple[int, int, int]) -> Trace:
    """A trace of messages (source, destination, bytes)."""
    ranks = tuple(range(world_size))
    events = [
        CommEvent(
            rank=source,
            n=n,
            op="send",
            group="",
            ranks=ranks,
            peer=target,
            tag=0,
            nbytes=nbytes,
            shapes=((nbytes,),),
            dtype="uint8",
            reduce_op=None,
            blocking=True,
            native=False,
            issued=0.0,
        )
        for n, (source, target, nbytes) in enumerate(messages)
    ]
    return Trace(world_size, events)


def shown(view) -> dict[tuple[int, int], str]:
    """(sender, receiver) -> what is written in that square, of the last run."""
    found = {}
    for box in boxes(view, "bytes"):
        source, target = map(int, re.findall(r"rank (\d)", box.hint))
        found[source, target] = box.word
    return {place: text for place, text in found.items() if text}


def test_rows_send_and_columns_receive():
    view = traffic_matrix(sends(3, (0, 1, 400), (0, 2, 400), (2, 0, 12)))
    assert len(boxes(view)) == 9
    assert "most: 400 bytes, 0 to 1" in words(view)
    assert shown(view) == {(0, 1): "400", (0, 2): "400", (2, 0): "12"}
    squares = {box.hint: box for box in boxes(view)}
    one, other = squares["rank 0 to rank 1: 400 bytes"], squares["rank 2 to rank 0: 12 bytes"]
    assert one.x > other.x
    assert one.y < other.y
    assert one.wide > 60  # few ranks have large squares


def test_sums_stand_beside_their_rows_and_below_their_columns():
    view = traffic_matrix(sends(3, (0, 1, 400), (0, 2, 500), (1, 2, 7)))
    squares = {box.hint[:16]: box for box in boxes(view)}
    spots = places(view)
    ((x, y),) = spots["900"]  # that rank 0 sends
    assert x > squares["rank 0 to rank 2"].right
    assert squares["rank 0 to rank 2"].y < y < squares["rank 1 to rank 2"].y
    ((x, y),) = spots["507"]  # that rank 2 receives
    assert squares["rank 2 to rank 2"].x < x < squares["rank 2 to rank 2"].right
    assert y > squares["rank 2 to rank 2"].y + squares["rank 2 to rank 2"].high


def test_nodes_are_named_and_what_goes_between_them_is_said():
    run = sends(4, (0, 1, 5_000), (1, 2, 300_000), (3, 0, 100_000))
    view = traffic_matrix({"a run": run}, per_node=2)
    assert words(view).count("node 0") == words(view).count("node 1") == 2
    assert "a run, 400 kB between nodes" in words(view)
    assert view.text.splitlines()[-1] == "between nodes of 2 ranks: 400,000"
    lines = re.findall(r"<polyline points='([\d.,]+) ([\d.,]+)'[^>]*stroke-width='2.5'", view.svg())
    assert len(lines) == 2  # down and across


def test_the_words_say_the_same():
    header, *rows = traffic_matrix(
        sends(3, (0, 1, 4000), (0, 2, 4000), (2, 0, 12))
    ).text.splitlines()
    assert " ".join(header.split()) == "bytes from to rank 0 to rank 1 to rank 2 sent"
    assert [row.split() for row in rows] == [
        ["rank", "0", ".", "4,000", "4,000", "8,000"],
        ["rank", "1", ".", ".", ".", "0"],
        ["rank", "2", "12", ".", ".", "12"],
        ["received", "12", "4,000", "4,000"],
    ]
    assert len({len(row) for row in rows[:3]}) == 1  # columns stand below each other


def test_runs_side_by_side_share_one_scale():
    view = traffic_matrix({"a star": sends(2, (0, 1, 100)), "heavy": sends(2, (1, 0, 5_000_000))})
    assert {"a star", "heavy"} < {*words(view)}
    assert {box.fill for box in boxes(view) if box.word} == {"strong"}
    strengths = {box.word: box.strength for box in boxes(view) if box.word}
    assert strengths == {"100": 0.12, "5 MB": 1}
    assert "a star:" in view.text
    assert "heavy:" in view.text


@pytest.mark.parametrize(
    ("count", "text"),
    [(9_999, "9,999"), (99_999, "99,999"), (166_400, "166 kB"), (3_200_000, "3.2 MB")],
)
def test_large_numbers_fit_their_squares(count, text):
    assert shown(traffic_matrix(sends(2, (0, 1, count)))) == {(0, 1): text}


def test_a_run_without_messages_is_a_picture_too():
    view = traffic_matrix(sends(1))
    assert "no messages" in words(view)
    assert view.text.splitlines()[1].split() == ["rank", "0", ".", "0"]


def test_the_same_run_gives_the_same_bytes():
    run = sends(4, (0, 1, 400), (3, 2, 400))
    assert traffic_matrix(run).html() == traffic_matrix(run).html()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="1 to 8 ranks, not 9"):
        traffic_matrix(sends(9))
    with pytest.raises(ValueError, match="4 ranks do not make nodes of 3"):
        traffic_matrix(sends(4), per_node=3)
    with pytest.raises(ValueError, match="no run"):
        traffic_matrix({})
