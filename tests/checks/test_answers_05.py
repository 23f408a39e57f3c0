"""Right answers to notebook 05 pass, on the inputs that are shown and on hidden ones."""

import pytest

from course_lib.checks import seeds
from course_lib.checks.exercises.nb05_pipeline_parallel import blocking
from course_lib.checks.registry import all_exercises
from course_lib.checks.runner import run_check
from course_lib.simulate.blocking import Hang, simulate_blocking
from course_lib.techniques.schedules import gpipe, interleaved, one_f_one_b
from tests.checks.answers_05 import ANSWERS

PAIRS = [(name, answer) for name, answers in ANSWERS.items() for answer in answers]


@pytest.mark.parametrize(("name", "answer"), PAIRS, ids=[answer.__name__ for _, answer in PAIRS])
def test_a_right_answer_passes(name, answer):
    exercise = all_exercises()[name]
    for rng in (seeds.public(name), seeds.hidden(name, "a secret")):
        verdict = run_check(exercise, answer, rng)
        assert verdict.passed, str(verdict)


def test_every_exercise_of_the_notebook_has_an_answer():
    of_notebook = {n for n, e in all_exercises().items() if e.notebook == "05_pipeline_parallel"}
    assert of_notebook == set(ANSWERS)


def test_the_reference_for_stuck_ranks_agrees_with_the_simulator():
    plain = [make(p, m) for make in (gpipe, one_f_one_b) for p in (1, 2, 3, 4) for m in (1, 2, 5)]
    for schedule in [*plain, interleaved(2, 4, 1)]:
        try:
            simulate_blocking(schedule)
            hangs = False
        except Hang:
            hangs = True
        assert bool(blocking.reference(blocking._pipeline(schedule))) == hangs
