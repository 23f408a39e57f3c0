"""All exercises of the course, by the name of the function that answers them."""

import functools
import importlib
import pkgutil
from collections.abc import Iterator

from . import exercises
from .exercise import Exercise


@functools.cache
def all_exercises() -> dict[str, Exercise]:
    """Name -> exercise, by notebook and name. `ValueError` for a name used twice.

    The order inside a notebook is that of its cells, and stands only there.
    """
    found: dict[str, Exercise] = {}
    for module in _modules():
        exercise: Exercise = importlib.import_module(module).EXERCISE
        if exercise.name in found:
            first = found[exercise.name].notebook
            raise ValueError(
                f"two exercises are called {exercise.name}: in {first} and {exercise.notebook}"
            )
        found[exercise.name] = exercise
    return found


def _modules() -> Iterator[str]:
    """Each exercise's module. A leading underscore marks what exercises share."""
    for folder in pkgutil.walk_packages(exercises.__path__, f"{exercises.__name__}."):
        if not folder.ispkg and not folder.name.rpartition(".")[2].startswith("_"):
            yield folder.name
