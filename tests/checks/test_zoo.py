"""Every wrong answer is rejected, and told what it was expected to be told."""

from collections import Counter

import pytest

from course_lib.checks.__main__ import main
from course_lib.checks.registry import all_exercises
from course_lib.checks.zoo import Rejection, Wrong, load_zoo, reject

ANIMALS = load_zoo()


@pytest.mark.parametrize(
    "animal", ANIMALS, ids=[f"{animal.exercise}-{animal.answer.__name__}" for animal in ANIMALS]
)
def test_a_wrong_answer_is_rejected_by_the_expected_message(animal):
    rejection = reject(animal)
    assert rejection.rejected, "it passed"
    assert rejection.as_expected, rejection.message


def test_every_exercise_has_at_least_five_wrong_answers_with_messages_of_their_own():
    said: dict[str, set] = {name: set() for name in all_exercises()}
    for animal in ANIMALS:
        said[animal.exercise].add(animal.says)
    assert {name: len(texts) for name, texts in said.items() if len(texts) < 5} == {}


def test_the_names_of_a_notebooks_wrong_answers_are_distinct():
    notebook = {name: exercise.notebook for name, exercise in all_exercises().items()}
    names = Counter((notebook[animal.exercise], animal.answer.__name__) for animal in ANIMALS)
    assert [name for name, count in names.items() if count > 1] == []


def test_a_message_other_than_the_expected_one_does_not_count():
    animal = Wrong("ring_all_reduce", "you averaged a sum", lambda tensor: tensor)
    assert not Rejection(animal, True, "something else is wrong").as_expected
    assert not Rejection(animal, False, "passed, though you averaged a sum").as_expected
    assert Rejection(animal, True, "exactly half: you\n            averaged a sum").as_expected


def test_the_score_table(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["checks", "crossover_bytes"])
    assert main() == 0
    *_, heading, row, total = capsys.readouterr().out.splitlines()
    assert heading.split("  ")[0] == "exercise"
    count = sum(animal.exercise == "crossover_bytes" for animal in ANIMALS)
    assert row.split() == ["crossover_bytes", *[str(count)] * 3]
    assert total.split() == ["all", *[str(count)] * 3]
