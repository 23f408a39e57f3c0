"""What must hold of every exercise, whichever notebook it belongs to."""

import inspect
import re

import pytest
import torch

from course_lib.checks import seeds
from course_lib.checks.registry import all_exercises
from course_lib.checks.run_answer import signature_mismatch

EXERCISES = list(all_exercises().values())
NAMES = [exercise.name for exercise in EXERCISES]


def _drawn(exercise, rng):
    return [(c.world_size, c.label, _plain(c.data)) for c in exercise.cases(rng)]


def _plain(value):
    """Nested lists instead of tensors, so that == compares them."""
    match value:
        case torch.Tensor():
            return str(value.dtype), value.tolist()
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return value


@pytest.mark.parametrize("exercise", EXERCISES, ids=NAMES)
def test_an_exercise_is_complete(exercise):
    assert exercise.name.isidentifier()
    assert re.fullmatch(r"\d\d_\w+", exercise.notebook)
    assert re.fullmatch(r"\(.*\)", exercise.signature)
    assert len(set(exercise.hints)) == 3
    assert all(len(hint.split()) >= 10 for hint in exercise.hints)
    assert exercise.passed
    assert not exercise.passed.endswith(".")
    assert exercise.points >= 1


@pytest.mark.parametrize("exercise", EXERCISES, ids=NAMES)
def test_a_seed_always_draws_the_same_cases(exercise):
    first = _drawn(exercise, seeds.public(exercise.name))
    assert first == _drawn(exercise, seeds.public(exercise.name))


@pytest.mark.parametrize("exercise", EXERCISES, ids=NAMES)
def test_hidden_inputs_are_others_of_the_same_kind(exercise):
    public = _drawn(exercise, seeds.public(exercise.name))
    hidden = _drawn(exercise, seeds.hidden(exercise.name, "a secret"))
    assert [world_size for world_size, *_ in public] == [world_size for world_size, *_ in hidden]
    assert public != hidden


def test_hidden_inputs_need_a_secret():
    for secret in ("", "public"):
        with pytest.raises(ValueError, match="need a secret of their own"):
            seeds.hidden("ring_all_reduce", secret)


@pytest.mark.parametrize("exercise", EXERCISES, ids=NAMES)
def test_a_function_with_the_signature_that_is_asked_fits(exercise):
    names: dict = {}
    exec(f"def answer{exercise.signature}: ...", names)
    assert signature_mismatch(exercise, names["answer"]) == ""
    if inspect.signature(names["answer"]).parameters:
        assert exercise.signature in signature_mismatch(exercise, lambda: None)
