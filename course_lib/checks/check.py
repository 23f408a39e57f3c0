"""`check(my_function)`: is it right?"""

import sys
from collections.abc import Callable

from course_lib import rich_display
from course_lib.ranks.errors import told_briefly

from . import calling_notebook, progress, seeds, unsolved
from .check_in_kernel import run_check
from .find_exercise import by_function
from .hint import hint
from .verdict import CheckFailed


def check(fn: Callable, *, timeout: float | None = None) -> None:
    """Run your function on real ranks and say whether it does what the exercise asks.

    Prints one line when it passes. Otherwise raises `CheckFailed`, or `NotAttempted` while the hole
    is still empty; the message says what was run, what was expected, what came, and a likely cause.

    timeout: seconds until the ranks of one run are stopped, instead of the exercise's own.
    Raises `ValueError` for one that is not above 0.
    """
    if timeout is not None and not timeout > 0:
        raise ValueError(f"timeout must be more than 0 seconds, not {timeout}")
    calling_notebook.offer(hint)
    caller = sys._getframe(1)
    exercise = by_function(fn, {**caller.f_globals, **caller.f_locals})
    if stale := calling_notebook.stale_definition(exercise.name):
        raise CheckFailed(stale)
    with told_briefly("the check was between two runs of your function."):
        verdict = run_check(exercise, fn, seeds.public(exercise.name), timeout)
    verdict.raise_unless_passed()
    progress.record(exercise.notebook, exercise.name, fn)
    unsolved.remember(exercise.name, fn)
    if not rich_display.show(verdict, str(verdict)):
        print(verdict)
