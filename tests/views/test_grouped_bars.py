"""Bars are as long as their numbers, series by series, and what is missing says so."""

import pytest

from course_lib.views.grouped_bars import grouped_bars
from tests.views.reading import boxes, keys, words

GROUPS = {"near": {"one": 1.0, "two": 2.0}, "far": {"one": 3.0, "two": None}}


def test_a_bar_is_as_long_as_its_number():
    view = grouped_bars(GROUPS, "two series", "seconds", "{:.1f} s".format, "too large")
    (near, far), (two,) = boxes(view, "one"), boxes(view, "two")
    assert near.x == far.x == two.x
    assert near.y < two.y < far.y
    assert (two.wide / near.wide, far.wide / near.wide) == pytest.approx((2, 3), abs=0.01)
    assert {"near", "far", "1.0 s", "2.0 s", "3.0 s", "too large", "seconds"} <= {*words(view)}
    assert keys(view) == ["one", "two"]


def test_the_text_is_a_table():
    text = grouped_bars(GROUPS, "two series", "seconds").text
    assert text == "two series\n      one  two\nnear    1    2\nfar     3    -"


def test_a_single_series_needs_no_key():
    assert keys(grouped_bars({"a": {"it": 1}, "b": {"it": 0}}, "one series", "bytes")) == []


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ({"a": {f"series {k}": 1 for k in range(9)}}, "not 9"),
        ({}, "not 0"),
        ({"a": {"it": -2}}, "a, it: a bar of -2"),
    ],
)
def test_what_cannot_be_drawn_is_refused(groups, said):
    with pytest.raises(ValueError, match=said):
        grouped_bars(groups, "title", "label")
