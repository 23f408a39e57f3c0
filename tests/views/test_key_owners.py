"""Strips of owners, and what moves between them."""

import pytest

from course_lib.views.key_owners import key_owners
from tests.views.reading import boxes

BEFORE, AFTER = [0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 0, 2, 2, 1, 1, 1]


def test_strips_and_words_say_who_has_what_and_what_moves():
    view = key_owners({"halves": (BEFORE, AFTER)})
    assert view.text.splitlines() == [
        "halves: 25% of the keys move",
        "          before  after",
        "server 0     50%    38%",
        "server 1     50%    38%",
        "server 2      0%    25%",
    ]
    before, after = (
        [box for box in boxes(view, "server") if box.hint.startswith(when)]
        for when in ("before", "after")
    )
    assert [box.word for box in before] == ["0", "1"]
    assert [box.word for box in after] == ["0", "2", "1"]
    (moved,) = boxes(view, "moved")
    assert moved.x == pytest.approx(after[1].x, abs=0.01)
    assert moved.right == pytest.approx(after[2].x, abs=0.01)


@pytest.mark.parametrize(
    ("placements", "message"),
    [
        ({}, "no placement"),
        ({"a": ([0, 1], [0])}, "2 keys before, of 1 after"),
        ({"a": ([0], [8])}, "9 servers, at most 8"),
    ],
)
def test_what_cannot_be_shown_is_refused(placements, message):
    with pytest.raises(ValueError, match=message):
        key_owners(placements)
