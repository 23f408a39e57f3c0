"""Loss curves of runs with steps of different lengths."""

import pytest

from course_lib.views.loss_curves import loss_curves

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
