"""Right answers to notebook 01 pass, on the inputs that are shown and on hidden ones."""

import pytest

from course_lib.checks import seeds
from course_lib.checks.exercises.nb01_parameter_server import bounding, placing
from course_lib.checks.registry import all_exercises
from course_lib.checks.runner import run_check
from course_lib.techniques.parameter_server import Progress
from tests.checks.answers_01 import ANSWERS

PAIRS = [(name, answer) for name, answers in ANSWERS.items() for answer in answers]


@pytest.mark.parametrize(
    ("name", "answer"), PAIRS, ids=[f"{name}-{n}" for n, (name, _) in enumerate(PAIRS)]
)
def test_a_right_answer_passes(name, answer):
    exercise = all_exercises()[name]
    for rng in (seeds.public(name), seeds.hidden(name, "a secret")):
        verdict = run_check(exercise, answer, rng)
        assert verdict.passed, str(verdict)


def test_every_exercise_of_the_notebook_has_an_answer():
    of_notebook = {n for n, e in all_exercises().items() if e.notebook == "01_parameter_server"}
    assert of_notebook == set(ANSWERS)


def test_the_reference_for_released_agrees_with_the_technique():
    for finished in ([0, 0], [3, 1, 2], [5, 0, 5, 1]):
        for bound in (0, 1, 2, 9):
            progress = Progress(range(len(finished)), bound)
            for worker, count in enumerate(finished):
                for _ in range(count):
                    progress.finish(worker)
            waiting = list(range(len(finished)))
            may = [worker for worker in waiting if progress.may_start(worker)]
            assert bounding.reference(finished, waiting, bound) == may


def test_adding_a_server_to_the_reference_ring_moves_its_share():
    keys = [str(number) for number in range(3000)]
    few, many = (
        placing.reference({"keys": keys, "servers": n, "how": "hashed"}, 128) for n in (4, 5)
    )
    moved = [new for old, new in zip(few, many, strict=True) if old != new]
    assert set(moved) == {4}
    assert 0.1 < len(moved) / len(keys) < 0.3
