"""A lesson goes on where an exercise is not solved, and prints whatever was guessed."""

import pytest

from course_lib import guessed, whose, yours_or
from course_lib.checks import unsolved


def memory_wall():
    return 1


def stand_in():
    return 2


@pytest.fixture(autouse=True)
def nothing_passed(monkeypatch):
    monkeypatch.setattr(unsolved, "_passed", {})
    monkeypatch.setattr(unsolved, "_ready_made", [])


def test_what_has_not_passed_is_replaced_and_that_is_said(capsys):
    assert yours_or(memory_wall, stand_in) is stand_in
    said = capsys.readouterr().out
    assert said.startswith("memory_wall has not passed in this kernel yet")
    assert "A ready-made one takes its place." in said


def test_what_has_passed_is_taken_in_silence(capsys):
    unsolved.remember("memory_wall", memory_wall)
    assert yours_or(memory_wall, stand_in) is memory_wall
    assert capsys.readouterr().out == ""


def test_a_function_written_anew_has_to_pass_anew():
    unsolved.remember("memory_wall", stand_in)
    assert yours_or(memory_wall, stand_in) is stand_in


def test_a_label_says_whose_function_it_is():
    assert whose(yours_or(memory_wall, stand_in)) == "ready-made"
    unsolved.remember("memory_wall", memory_wall)
    assert whose(yours_or(memory_wall, stand_in)) == "your"


def test_a_guess_is_printed_whatever_it_is():
    assert guessed(...) == "no guess yet"
    assert guessed(3, ..., "many", None) == "3, no guess yet, many, None"
    assert guessed([0, 1, 2], 3) == "0, 1 and 2; 3"
    assert guessed((1, ..., 2)) == "1, no guess yet and 2"
    assert guessed(["activations"]) == guessed({"activations"}) == "activations"
    assert guessed({"ZeRO-1": 2, "ZeRO-3": [1, 2]}) == "ZeRO-1: 2, ZeRO-3: 1 and 2"
    assert guessed([], {}) == "none; none"
    assert guessed(12000, -83119, 9999, True) == "12,000; -83,119; 9999; True"
    assert guessed(2**0.5, 2.0, 1e-10) == "1.414214, 2.0, 1e-10"
