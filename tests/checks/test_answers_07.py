"""Right answers to notebook 07 pass, on the inputs that are shown and on hidden ones."""

import pytest

from course_lib.checks import seeds
from course_lib.checks.registry import all_exercises
from course_lib.checks.runner import run_check
from tests.checks.answers_07 import ANSWERS

PAIRS = [(name, answer) for name, answers in ANSWERS.items() for answer in answers]


@pytest.mark.parametrize(("name", "answer"), PAIRS, ids=[answer.__name__ for _, answer in PAIRS])
def test_a_right_answer_passes(name, answer):
    exercise = all_exercises()[name]
    for rng in (seeds.public(name), seeds.hidden(name, "a secret")):
        verdict = run_check(exercise, answer, rng)
        assert verdict.passed, str(verdict)


def test_every_exercise_of_the_notebook_has_an_answer():
    of_notebook = {n for n, e in all_exercises().items() if e.notebook == "07_three_d_parallelism"}
    assert of_notebook == set(ANSWERS)
