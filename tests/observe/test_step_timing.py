"""Steps are timed in turns, after two rounds to warm up."""

import pytest

from course_lib.observe.step_timing import in_turns


def test_steps_take_turns_and_are_counted_after_two_rounds():
    called = []
    steps = {name: lambda name=name: called.append(name) for name in ("one", "two")}
    seconds = in_turns(steps, rounds=3, ready=lambda: called.append("ready"))
    assert called == ["ready", "one", "ready", "two"] * 5
    assert {name: len(own) for name, own in seconds.items()} == {"one": 3, "two": 3}


def test_no_rounds_are_refused():
    with pytest.raises(ValueError, match="rounds = 0, at least 1"):
        in_turns({}, rounds=0)
