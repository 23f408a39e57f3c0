"""Loss curves of runs with steps of different lengths."""

import pytest

from course_lib.views.loss_curves import loss_curves
from tests.views.reading import tree, words

SVG = "{http://www.w3.org/2000/svg}"

FAST = ([1.0, 2.0, 3.0, 4.0, 5.0], [9.0, 7.0, 5.0, 3.0, 1.0])
SLOW = ([2.5, 5.0], [9.0, 7.0])


def test_the_words_say_what_each_run_has_reached_at_a_moment():
    lines = loss_curves({"fast": FAST, "slow": SLOW}, "time", "two runs").text.splitlines()
    assert lines[0] == "two runs"
    assert lines[1].split() == ["time", "fast", "slow"]
    assert [line.split() for line in lines[-5:]] == [
        ["1", "9.00", "-"],
        ["2", "7.00", "-"],
        ["3", "5.00", "9.00"],
        ["4", "3.00", "9.00"],
        ["5", "1.00", "7.00"],
    ]


def test_moments_without_losses_are_refused_with_both_numbers():
    with pytest.raises(ValueError, match="slow: 2 moments and 1 losses"):
        loss_curves({"slow": ([1.0, 2.0], [3.0])}, "time", "one run")


def test_a_target_is_reached_at_the_first_loss_at_or_below_it():
    view = loss_curves({"fast": FAST, "slow": SLOW}, "time", "two runs", target=5.0)
    assert view.text.splitlines()[-2:] == ["fast: at 5 at 3", "slow: at 5 never"]
    assert {"target 5", "3"} < {*words(view)}
    assert "fast: at 5 at 3" in view.svg()


def test_a_run_that_goes_back_has_two_lines_and_what_happened_is_marked():
    killed = ([0, 10, 20, 30, 20, 30, 40], [9, 8, 7, 6, 7, 6, 5])
    events = {"killed": 30, "goes on from 20": 20}
    view = loss_curves({"run": killed}, "step", "a kill", events=events)
    lines = [line for line in tree(view).iter(f"{SVG}polyline") if line.get("data-key") == "run"]
    assert [len(line.get("points").split()) for line in lines] == [4, 3]
    assert {"killed", "goes on from 20"} < {*words(view)}
    assert view.text.splitlines()[-2:] == ["killed: 30", "goes on from 20: 20"]
    with pytest.raises(ValueError, match="late at 50 is not between 0 and 40"):
        loss_curves({"run": killed}, "step", "a kill", events={"late": 50})
