"""Known answers: what the checks are checked with.

`solutions/answers/` has a file for each exercise, `02_ring_all_reduce/ring_all_reduce.py`, with
functions like a learner's in it. Each is marked as right, or as wrong with words that the message
that rejects it must contain:

    @right
    def as_two_halves(tensor, group=None): ...

    @wrong(says="you averaged a sum")
    def mean_for_sum(tensor, group=None): ...

What several exercises of a lesson share lies in its `_common.py`.
"""

import importlib
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cloudpickle

from . import seeds
from .check_in_kernel import run_check
from .exercise import Exercise
from .registry import all_exercises

ANSWERS = Path(__file__).parents[2] / "solutions" / "answers"
_PACKAGE = "known_answers_of_the_course"
_MARK = "known_answer"


@dataclass(frozen=True)
class KnownAnswer:
    """An answer to `exercise`; wrong ones are rejected by a message that contains `says`."""

    exercise: str
    answer: Callable
    says: str = ""

    @property
    def right(self) -> bool:
        return not self.says

    @property
    def name(self) -> str:
        return self.answer.__name__


@dataclass(frozen=True)
class Rejection:
    """What the check made of a wrong answer."""

    wrong: KnownAnswer
    rejected: bool
    message: str

    @property
    def as_expected(self) -> bool:
        return self.rejected and self.wrong.says in " ".join(self.message.split())


def right(answer: Callable) -> Callable:
    """Mark a function as a right answer to the exercise that its file is named after."""
    return _marked(answer, "")


def wrong(*, says: str) -> Callable[[Callable], Callable]:
    """Mark a function as a wrong answer, rejected with words that contain `says`."""
    if not says:
        raise ValueError("a wrong answer needs the words that its author is to read")
    return lambda answer: _marked(answer, says)


def _marked(answer: Callable, says: str) -> Callable:
    exercise = answer.__module__.rpartition(".")[2]
    setattr(answer, _MARK, KnownAnswer(exercise, answer, says))
    return answer


# ---------------------------------------------------------------------------------------------


def known_answers(exercise: Exercise, folder: Path = ANSWERS) -> list[KnownAnswer]:
    """All known answers to one exercise, in the order they are written; [] if it has no file.

    Raises `FileNotFoundError` where there are none at all (an installed package without the
    solutions).
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"no answers in {folder}: run this in the course's folder")
    file = folder / exercise.notebook / f"{exercise.name}.py"
    return list(_in(_loaded(file))) if file.exists() else []


def all_known_answers() -> list[KnownAnswer]:
    """Those of every exercise. Raises `ValueError` for a file that belongs to none."""
    files = {(f.parent.name, f.stem) for f in ANSWERS.glob("*/[!_]*.py")}
    homes = {(exercise.notebook, exercise.name) for exercise in all_exercises().values()}
    if strays := files - homes:
        lesson, name = min(strays)
        raise ValueError(f"{lesson}/{name}.py answers {name}, and there is no such exercise")
    return [known for exercise in all_exercises().values() for known in known_answers(exercise)]


def _in(module: types.ModuleType) -> Iterator[KnownAnswer]:
    for value in vars(module).values():
        # A function that was imported from another exercise's answers is not meant here.
        if getattr(value, "__module__", "") == module.__name__ and hasattr(value, _MARK):
            yield getattr(value, _MARK)


def _loaded(file: Path) -> types.ModuleType:
    """The file as a module of a package, so that it can import its neighbours (`from ._common`).

    All of the package travels to the ranks by value, as what a learner writes does.
    """
    folder = file.parents[1]
    package = f"{_PACKAGE}_{abs(hash(folder)):x}"
    if package not in sys.modules:
        made = types.ModuleType(package)
        made.__path__ = [str(folder)]
        sys.modules[package] = made
        cloudpickle.register_pickle_by_value(made)
    return importlib.import_module(f"{package}.{file.parent.name}.{file.stem}")


# ---------------------------------------------------------------------------------------------


def reject(known: KnownAnswer) -> Rejection:
    """Run the public check of the exercise on one wrong answer."""
    exercise = all_exercises()[known.exercise]
    verdict = run_check(exercise, known.answer, seeds.public(exercise.name))
    return Rejection(known, not verdict.passed, str(verdict))
