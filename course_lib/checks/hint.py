"""`hint(my_function)`: a nudge; levels 2 and 3 say more."""

import textwrap
from collections.abc import Callable

from .find_exercise import by_function, by_name


def hint(fn: Callable | str, level: int = 1) -> None:
    """Print a hint to an exercise, given your function or its name; `level` is 1, 2 or 3."""
    exercise = by_name(fn) if isinstance(fn, str) else by_function(fn)
    if level not in (1, 2, 3):
        raise ValueError(f"hints have the levels 1, 2 and 3, not {level!r}")
    text = textwrap.dedent(exercise.hints[level - 1]).strip()
    print(f"Hint {level} of 3 to {exercise.name}:\n{text}")
