"""The curves are those of the function given, with a dot where each falls below the line."""

import re

import pytest

from course_lib.views.bubble_curves import bubble_curves
from tests.views.reading import curves


def idle(p, m):
    return (p - 1) / (m + p - 1)


def test_it_says_where_each_curve_falls_below_the_line():
    view = bubble_curves(idle, (2, 8))
    assert view.text.startswith("idle for less than 10% of the time from m = 10 and 64 on\n")
    hints = re.findall(r"<title>(p = \d+: below [^<]*)</title>", view.svg())
    assert hints == ["p = 2: below 10% from m = 10", "p = 8: below 10% from m = 64"]


def test_text_and_picture_have_the_same_shares():
    view = bubble_curves(idle, (2, 8))
    rows = {row.split()[0]: row.split()[1:] for row in view.text.splitlines()[2:]}
    assert rows["1"] == ["50%", "88%"]
    assert rows["64"] == ["2%", "10%"]
    few, many = curves(view).values()
    assert few[0][0] == many[0][0]  # m = 1
    assert few[0][1] - many[0][1] == pytest.approx(250 * (7 / 8 - 1 / 2), abs=0.2)


def test_a_line_that_no_curve_reaches_is_not_named():
    assert "from m" not in bubble_curves(lambda p, m: 1.0, (2,)).text


def test_more_curves_than_can_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="not 9"):
        bubble_curves(idle, range(1, 10))
