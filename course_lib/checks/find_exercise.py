"""From what a learner hands to `check` or `hint` to the exercise they mean."""

import difflib
import inspect
from collections.abc import Mapping
from typing import Any

from .exercise import Exercise
from .registry import all_exercises
from .verdict import CheckFailed


def by_name(name: str) -> Exercise:
    """The exercise called `name`. Raises `CheckFailed`, naming those that are alike."""
    exercises = all_exercises()
    if name in exercises:
        return exercises[name]
    alike = difflib.get_close_matches(name, exercises, n=2)
    if alike:
        raise CheckFailed(f"There is no exercise {name!r}. Did you mean {' or '.join(alike)}?")
    raise CheckFailed(
        f"There is no exercise {name!r}. An exercise is found by the name of your function: keep "
        "the name that the notebook gave it."
    )


def by_function(fn: Any, names: Mapping[str, Any] | None = None) -> Exercise:
    """The exercise that the function `fn` answers. Raises `CheckFailed` saying what `fn` is.

    names: what the caller has bound. A function that has another name of its own, as the `apply` of
    an autograd.Function, is known by the one that it was given there.
    """
    if isinstance(fn, str):
        by_name(fn)
        raise CheckFailed(f"Give the function itself: check({fn}), without the quotes.")
    if inspect.isclass(fn):
        raise CheckFailed(
            f"{fn.__name__} is a class here, and an exercise is answered by a function. If a class "
            "has taken the name of your function, run the cell with your function again."
        )
    if not callable(fn):
        raise CheckFailed(
            f"This is {_described(fn)}, and not your function. Write the function's name without "
            "calling it: check(my_function), not check(my_function(x))."
        )
    given = [name for name, value in (names or {}).items() if value is fn]
    known = [name for name in given if name in all_exercises()]
    if len(known) == 1 and not _from_course(fn):
        return by_name(known[0])
    name = getattr(fn, "__name__", "")
    if not name or name == "<lambda>":
        what = "A lambda" if name else f"A {type(fn).__name__} object"
        raise CheckFailed(
            f"{what} has no name, and an exercise is found by the name of the function. Write it "
            "with def."
        )
    if _from_course(fn):
        raise CheckFailed(
            f"This {name} is the course's own, from {fn.__module__}, and not yours. Run the cell "
            "with your function again."
        )
    return by_name(name)


def _from_course(fn: Any) -> bool:
    return str(getattr(fn, "__module__", "")).startswith("course_lib.")


def _described(value: Any) -> str:
    if value is None:
        return "None (what a function without return gives)"
    text = repr(value)
    kind = f"{'an' if type(value).__name__[0] in 'aeiou' else 'a'} {type(value).__name__}"
    return f"{text}, {kind}" if len(text) <= 40 and "\n" not in text else kind
