"""A small course of one lesson, whose checks need no ranks; a grader for all that grade."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest

from course_lib.checks.contract import Contract
from course_lib.checks.sandbox.grader import Grader
from course_lib.classroom import Course
from course_lib.classroom.grading import batch

LESSON = '''\
# %% [markdown]
# # Doubling
#
# Twice as much.

# %%
def check(function):
    try:
        right = function(21) == 42
    except NotImplementedError as reason:
        raise AssertionError(f"{function.__name__}: {reason}") from None
    if not right:
        raise AssertionError(f"{function.__name__} is wrong")
    print(f"{function.__name__} passed")


# %% exercise="double"
def double(x):
    """Twice `x`."""
    ### BEGIN SOLUTION
    twice_the_argument_by_addition = x + x
    return twice_the_argument_by_addition
    ### END SOLUTION


# %% check="double"
check(double)

# %%
### BEGIN SOLUTION
guess = 84
### END SOLUTION

# %%
print("double(42):", guess)

# %% tags=["nbval-ignore-output"]
import time

print(time.time())

# %% tags=["raises-exception"]
raise ValueError("on purpose")
'''


@pytest.fixture
def write(tmp_path):
    """Writes solutions/01_double.py with a change to it, and returns the course around it."""

    def write(old: str = "", new: str = "", exercises: dict | None = None) -> Course:
        assert old in LESSON
        source = Path(tmp_path, "solutions", "01_double.py")
        source.parent.mkdir(exist_ok=True)
        source.write_text(LESSON.replace(old, new) if old else LESSON)
        double = SimpleNamespace(notebook="01_double", points=3, contract=Contract())
        return Course(tmp_path, {"double": double} if exercises is None else exercises)

    return write


@pytest.fixture(scope="session")
def grader():
    with Grader() as grader:
        yield grader


@contextlib.contextmanager
def _shared(grader):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch, "Grader", lambda *_: contextlib.nullcontext(grader))
        yield


@pytest.fixture
def one_grader(grader):
    """The batch of this test shares a grader with others: its own would import torch anew."""
    with _shared(grader):
        yield


@pytest.fixture(scope="module")
def one_grader_for_all(grader):
    """The same for a fixture of a module."""
    with _shared(grader):
        yield
