"""Who sends to whom, as squares and as a table."""

import re

import pytest

from course_lib.observe import CommEvent, Trace
from course_lib.views.traffic_matrix import traffic_matrix
from tests.views.reading import boxes, words


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
    assert strengths == {"100": 0.12, "5M": 1}
    assert "a star:" in view.text
    assert "heavy:" in view.text


@pytest.mark.parametrize(
    ("count", "text"),
    [(9_999, "9999"), (12_500, "12.5k"), (3_200_000, "3.2M"), (7 * 10**11, "700G")],
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
    with pytest.raises(ValueError, match="no run"):
        traffic_matrix({})
