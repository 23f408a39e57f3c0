"""The zoo: wrong answers to every exercise, each of which its check must reject, and say why.

`solutions/zoo/` has a file for each notebook. An animal is a function like a learner's:

    @wrong("ring_all_reduce", says="you averaged a sum")
    def mean_for_sum(tensor, group=None): ...
"""

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from . import seeds
from .registry import all_exercises
from .runner import run_check

ZOO = Path(__file__).parents[2] / "solutions" / "zoo"


@dataclass(frozen=True)
class Wrong:
    """A wrong answer to `exercise`; the message that rejects it must contain `says`."""

    exercise: str
    says: str
    answer: Callable


@dataclass(frozen=True)
class Rejection:
    """What the check made of a wrong answer."""

    wrong: Wrong
    rejected: bool
    message: str

    @property
    def as_expected(self) -> bool:
        return self.rejected and self.wrong.says in " ".join(self.message.split())


def wrong(exercise: str, *, says: str) -> Callable[[Callable], Callable]:
    """Mark a function as a wrong answer to `exercise`, rejected with words that contain `says`."""

    def mark(answer: Callable) -> Callable:
        answer.wrong = Wrong(exercise, says, answer)  # type: ignore[attr-defined]
        return answer

    return mark


def load_zoo(folder: Path = ZOO) -> list[Wrong]:
    """All wrong answers, file by file in the order they are written.

    Raises `FileNotFoundError` where there is no zoo (an installed package without the solutions)
    and `ValueError` for an exercise that does not exist.
    """
    files = sorted(folder.glob("[0-9]*.py"))
    if not files:
        raise FileNotFoundError(f"no wrong answers in {folder}: run this in the course's folder")
    found = [animal for file in files for animal in _animals(file)]
    for animal in found:
        if animal.exercise not in all_exercises():
            name = animal.answer.__name__
            raise ValueError(f"{name} answers {animal.exercise}, and there is no such exercise")
    return found


def _animals(file: Path) -> list[Wrong]:
    spec = importlib.util.spec_from_file_location(f"zoo_{file.stem}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # Unknown to sys.modules, the functions travel to the ranks by value, as a learner's do.
    assert module.__name__ not in sys.modules
    return [value.wrong for value in vars(module).values() if hasattr(value, "wrong")]


def reject(animal: Wrong) -> Rejection:
    """Run the public check of the exercise on one wrong answer."""
    exercise = all_exercises()[animal.exercise]
    verdict = run_check(exercise, animal.answer, seeds.public(exercise.name))
    return Rejection(animal, not verdict.passed, str(verdict))
