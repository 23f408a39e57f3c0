"""A bar ends at the quickest round, and each number stands where it belongs."""

import pytest

from course_lib.views.step_times import step_times
from tests.views.reading import boxes, places

TIMES = {"one": [0.1, 0.2, 0.4], "two": [0.3, 0.3, 0.3]}


def test_the_words_have_the_quickest_and_the_median_over_the_first_ones_quickest():
    first, *rows = step_times(TIMES).text.splitlines()
    assert first.endswith("one: 100.0 ms")
    assert [row.split() for row in rows] == [
        ["one", "1.00", "(median", "2.00)"],
        ["two", "3.00", "(median", "3.00)"],
    ]


def test_the_quickest_is_written_in_its_bar_and_the_median_behind_the_line():
    view = step_times(TIMES, {"two": 4.0})
    one, two = boxes(view, "quickest")
    assert two.wide / one.wide == pytest.approx(3, abs=0.01)
    found = places(view)
    assert one.x < found["1.00"][0][0] < one.right
    [(behind, _)] = found["median 2.00"]
    assert behind == pytest.approx(one.x + 2 * one.wide, abs=10)
    assert "two: 4.00 times the operations" in view.svg()


def test_nothing_to_compare_is_refused():
    with pytest.raises(ValueError, match="0 steps to compare"):
        step_times({})
