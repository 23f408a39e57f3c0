"""Curves over a ratio: one that leaves the picture is cut at its edge, not at its last point."""

import pytest

from course_lib.views.ratio_curves import ratio_curves
from tests.views.reading import curves


def test_a_curve_is_cut_where_it_leaves_the_picture():
    high = ratio_curves([1, 2, 4], {"a": [5, 1, 1], "b": [3, 1, 1]}, "x", "y", "cut", highest=3)
    cut, whole = curves(high)["a"], curves(high)["b"]
    assert len(cut) == len(whole) == 3
    assert cut[0][1] == pytest.approx(whole[0][1])  # at the top
    assert whole[0][0] < cut[0][0] < cut[1][0]
    assert cut[1:] == whole[1:]
    assert [len(row.split()) for row in high.text.splitlines()[1:]] == [3, 3, 3, 3]
