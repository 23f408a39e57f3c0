"""A course of one lesson and three small exercises, to be graded in fractions of a second."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import torch
import torch.distributed as dist

from course_lib.checks import traffic_limits
from course_lib.checks.call_answer import plain
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank
from course_lib.classroom import Course, read_lesson
from course_lib.classroom.student_notebook import solution_notebook, student_notebook

LESSON = '''\
# %% [markdown]
# # Tiny

# %%
import torch
import torch.distributed as dist

from course_lib import check, hint, run_ranks


# %%
def added(a, b):
    return a + b


# %% exercise="double"
def double(x):
    """Twice `x`."""
    ### BEGIN SOLUTION
    return added(x, x)
    ### END SOLUTION


# %% check="double"
check(double)

# %%
raise RuntimeError("demonstrations are not run when a submission is graded")


# %% exercise="quadruple"
def quadruple(x):
    """Four times `x`."""
    ### BEGIN SOLUTION
    return double(double(x))
    ### END SOLUTION


# %% check="quadruple"
check(quadruple)


# %% exercise="exchange"
def exchange(tensor):
    """The other rank's tensor."""
    ### BEGIN SOLUTION
    other = 1 - dist.get_rank()
    theirs = torch.empty_like(tensor)
    sending = dist.isend(tensor, dst=other)
    dist.recv(theirs, src=other)
    sending.wait()
    return theirs
    ### END SOLUTION


# %% check="exchange"
check(exchange)
'''


def _numbers(rng: random.Random) -> list[Case]:
    numbers = [7, rng.randrange(1000, 10**6)]
    return [Case(1, f"x = {number}", {"x": number}) for number in numbers]


def _call(answer: Callable, case: Case) -> Any:
    return plain(answer(case.data["x"]))


def _times(factor: int) -> Callable[[Case, Observation], Finding | None]:
    def judge(case: Case, observation: Observation) -> Finding | None:
        got, want = observation.values[0], factor * case.data["x"]
        if type(got) is int and got == want:
            return None
        return Finding("the number is wrong", 0, expected=f"{want}", got=f"{got}"[:200])

    return judge


def _tensors(rng: random.Random) -> list[Case]:
    return [Case(2, "two numbers", {"x": [torch.tensor([rng.random()]) for _ in range(2)]})]


def _exchange(answer: Callable, case: Case) -> Any:
    return plain(answer(case.data["x"][dist.get_rank()].clone()))


def _exchanged(case: Case, observation: Observation) -> Finding | None:
    for rank, got in enumerate(observation.values):
        if not (isinstance(got, torch.Tensor) and torch.equal(got, case.data["x"][1 - rank])):
            return Finding("this is not the other's tensor", rank)
    for rank in range(2):
        if finding := traffic_limits.messages(observation, rank, 1, "one each way is enough"):
            return finding
    return None


def _exercise(name: str, signature: str, cases, on_rank, judge, points: int, **more) -> Exercise:
    return Exercise(
        module=f"nb01_tiny.{name}",
        signature=signature,
        cases=cases,
        on_rank=on_rank,
        judge=judge,
        hints=("one", "two", "three"),
        passed="it does",
        points=points,
        timeout=5.0,
        **more,
    )


EXERCISES = {
    exercise.name: exercise
    for exercise in (
        _exercise("double", "(x)", _numbers, _call, _times(2), 1),
        _exercise("quadruple", "(x)", _numbers, _call, _times(4), 2),
        _exercise("exchange", "(tensor)", _tensors, _exchange, _exchanged, 4, own={"x": by_rank}),
    )
}
ANSWERS = {
    "double": "def double(x):\n    return x + x",
    "quadruple": "def quadruple(x):\n    return 4 * x",
    "exchange": (
        "def exchange(tensor):\n"
        "    other, theirs = 1 - dist.get_rank(), torch.empty_like(tensor)\n"
        "    sending = dist.isend(tensor, dst=other)\n"
        "    dist.recv(theirs, src=other)\n"
        "    sending.wait()\n"
        "    return theirs"
    ),
}


def write_course(root: Path) -> Course:
    """solutions/01_tiny.py and both notebooks, not run."""
    (root / "solutions").mkdir(parents=True)
    (root / "notebooks").mkdir()
    source = root / "solutions" / "01_tiny.py"
    source.write_text(LESSON)
    lesson = read_lesson(source)
    points = {name: exercise.points for name, exercise in EXERCISES.items()}
    nbformat.write(student_notebook(lesson, points), root / "notebooks" / "01_tiny.ipynb")
    nbformat.write(solution_notebook(lesson, points), root / "solutions" / "01_tiny.ipynb")
    return Course(root, EXERCISES)


def answered(root: Path, **answers: str) -> nbformat.NotebookNode:
    """The student's notebook with these answers in their cells."""
    notebook = nbformat.read(root / "notebooks" / "01_tiny.ipynb", as_version=4)
    for cell in notebook.cells:
        name = cell.id.removeprefix("answer-")
        if name in answers:
            cell.source = answers[name]
    return notebook
