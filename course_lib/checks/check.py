"""`check(my_function)`: is it right?"""

from collections.abc import Callable

from course_lib import shown

from . import progress, seeds, unsolved
from .lookup import by_function
from .runner import run_check


def check(fn: Callable) -> None:
    """Run your function on real ranks and say whether it does what the exercise asks.

    Prints one line when it passes. Otherwise raises `CheckFailed`, or `NotAttempted` while the hole
    is still empty; the message says what was run, what was expected, what came, and a likely cause.
    """
    exercise = by_function(fn)
    verdict = run_check(exercise, fn, seeds.public(exercise.name))
    verdict.raise_unless_passed()
    progress.record(exercise.notebook, exercise.name, fn)
    unsolved.remember(exercise.name, fn)
    if not shown.show(verdict, str(verdict)):
        print(verdict)
