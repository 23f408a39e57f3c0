"""Bars as long as the times that they stand for, the shortest of all marked, and no other."""

import pytest

from course_lib.views.time_split import time_split
from tests.views.reading import boxes, keys, words


def test_bars_are_as_long_as_their_times():
    view = time_split({"a": (10, 30), "b": (20, 5), "c": (40, 0)}, "tasks", "three runs")
    found = {key: [box.wide for box in boxes(view, key)] for key in ("computing", "waiting")}
    unit = found["computing"][0] / 10
    assert found["computing"] == pytest.approx([10 * unit, 20 * unit, 40 * unit], abs=0.02)
    assert found["waiting"] == pytest.approx([30 * unit, 5 * unit], abs=0.02)
    assert [word for word in words(view) if "shortest" in word] == ["25, the shortest"]
    assert keys(view) == ["computing", "waiting"]
    assert [line.split() for line in view.text.splitlines()[2:4]] == [
        ["a", "10.0", "30.0", "40.0"],
        ["b", "20.0", "5.0", "25.0"],
    ]


def test_of_equal_bars_none_is_the_shortest():
    view = time_split({"a": (90, 10), "b": (50, 50)}, "%")
    assert not [word for word in words(view) if "shortest" in word]


@pytest.mark.parametrize(
    ("runs", "said"),
    [({}, "no run"), ({"a": (-1, 2)}, "computing -1"), ({"a": (0, 0)}, "computing 0")],
)
def test_what_cannot_be_drawn_is_refused(runs, said):
    with pytest.raises(ValueError, match=said):
        time_split(runs, "tasks")
