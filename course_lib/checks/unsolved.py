"""What a lesson prints of a guess, and what it runs where an exercise is not solved yet.

A lesson must go on whatever a learner has written or left out above.
"""

from collections.abc import Callable, Mapping, Set
from typing import Any

from course_lib.text import listed

_passed: dict[str, Any] = {}  # exercise -> the function that passed last, in this kernel
_ready_made: list[Callable] = []  # what stands in for answers


def remember(exercise: str, fn: Callable) -> None:
    """Note that `fn` has passed the check of `exercise`."""
    _passed[exercise] = fn


def solved(*answers: Callable) -> bool:
    """Whether all these functions have passed their checks in this kernel; if not, says so."""
    names = [getattr(fn, "__name__", repr(fn)) for fn in answers]
    missing = [name for name, fn in zip(names, answers, strict=True) if _passed.get(name) is not fn]
    if missing:
        have, them = ("has", "it") if len(missing) == 1 else ("have", "them")
        print(
            f"{' and '.join(missing)} {have} not passed in this kernel yet: "
            f"this cell goes on without {them}."
        )
    return not missing


def yours_or(answer: Callable, instead: Callable) -> Callable:
    """Your function if it has passed its check in this kernel; else `instead`, and says so."""
    if solved(answer):
        return answer
    print("A ready-made one takes its place.")
    _ready_made.append(instead)
    return instead


def whose(function: Callable) -> str:
    """For a label: "your", or "ready-made" if `yours_or` has put this function in the place."""
    return "ready-made" if any(each is function for each in _ready_made) else "your"


def guessed(*guesses: Any) -> str:
    """Predictions as text, whatever was written; an unfilled `...` is "no guess yet"."""
    said = [_said(guess) for guess in guesses]
    several = any(isinstance(guess, Mapping | list | tuple | Set) for guess in guesses)
    several |= any("," in words for words in said)
    return ("; " if several else ", ").join(said)


def _said(guess: Any) -> str:
    if guess is ...:
        return "no guess yet"
    if isinstance(guess, Mapping):
        return ", ".join(f"{key}: {_said(value)}" for key, value in guess.items()) or "none"
    if isinstance(guess, list | tuple | Set):
        return listed(map(_said, guess)) if guess else "none"
    if type(guess) is int and abs(guess) >= 10_000:
        return f"{guess:,}"
    # A square root says as much with six digits as with sixteen
    return f"{round(guess, 6)}" if type(guess) is float and abs(guess) > 1e-3 else f"{guess}"
