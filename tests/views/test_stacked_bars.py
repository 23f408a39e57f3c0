"""Any amounts can be stacked, in the colours of what they are."""

import pytest

from course_lib.views.palette import MEMORY, SERIES, STEP, WAITS
from course_lib.views.stacked_bars import stacked_bars
from tests.views.reading import boxes, keys, places, words

TIMES = {"bound 0": {"computing": 30.0, "waiting": 60.0}, "bound 8": {"computing": 40.0}}


def test_parts_have_the_colours_of_their_names_or_others_that_differ():
    assert {box.key: box.fill for box in boxes(stacked_bars(TIMES, "tasks"))} == {
        "computing": STEP["compute"].color, "waiting": WAITS.color,
    }  # fmt: skip
    used = boxes(stacked_bars({"a": {"used": 1.0, "unused": 2.0}}, "parameters"))
    assert [box.fill for box in used] == [STEP["compute"].color, WAITS.color]
    held = {"a": {"optimizer": 2.0, "parameters": 1.0, "gradients": 0.0}}
    assert keys(stacked_bars(held, "bytes")) == ["parameters", "optimizer"]
    assert {box.fill for box in boxes(stacked_bars(held, "bytes"))} == {
        MEMORY["parameters"].color, MEMORY["optimizer"].color,
    }  # fmt: skip
    fruit = {"a": {"apples": 1.0, "pears": 2.0}}
    assert [box.fill for box in boxes(stacked_bars(fruit, "n"))] == [f.color for f in SERIES[:2]]


def test_words_are_a_table_with_the_total():
    assert stacked_bars(TIMES, "tasks", "time to the target").text.splitlines() == [
        "time to the target",
        "         computing  waiting  total",
        "bound 0         30       60     90",
        "bound 8         40        .     40",
    ]


def test_a_limit_is_a_line_with_words_and_what_is_beyond_it_is_told():
    view = stacked_bars(TIMES, "s", limit=50.0, limit_words="a shift", verdicts=("ok", "too long"))
    assert {"a shift", "90, too long", "40"} < {*words(view)}
    assert view.text.splitlines()[1].endswith("too long")
    assert view.text.splitlines()[-1] == "a shift"
    [(line, _)] = places(view)["a shift"]
    bars = {box.y: box.right for box in boxes(view)}
    assert min(bars.values()) < line < max(bars.values())


@pytest.mark.parametrize(
    ("bars", "said"),
    [
        ({}, "no bar"),
        ({"a": {"b": -1.0}}, r"below 0 cannot be stacked: \{'b': -1.0\}"),
        ({"a": dict.fromkeys("bcdef", 1.0)}, "up to 4 parts can be told apart, and there are 5"),
    ],
)
def test_what_cannot_be_drawn_is_refused(bars, said):
    with pytest.raises(ValueError, match=said):
        stacked_bars(bars, "n")
