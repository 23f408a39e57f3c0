"""All exercises of the course, by the name of the function that answers them."""

import functools
import importlib
import pkgutil

from . import exercises
from .exercise import Exercise


@functools.cache
def all_exercises() -> dict[str, Exercise]:
    """Name -> exercise, in the order of the notebooks. `ValueError` for a name used twice."""
    found: dict[str, Exercise] = {}
    for module in sorted(module.name for module in pkgutil.iter_modules(exercises.__path__)):
        for exercise in importlib.import_module(f"{exercises.__name__}.{module}").EXERCISES:
            if exercise.name in found:
                first = found[exercise.name].notebook
                raise ValueError(
                    f"two exercises are called {exercise.name}: in {first} and {exercise.notebook}"
                )
            found[exercise.name] = exercise
    return found
