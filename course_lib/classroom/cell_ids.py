"""The ids of an exercise's cells: what ties a notebook to its lesson, wherever it has been.

An id has at most 64 letters, digits, - and _ (nbformat 4.5); four are left for a number behind it.
"""

_LONGEST = 60


def cell_id(kind: str, name: str) -> str:
    """The id of the first cell of a kind ("answer", "check") with this name."""
    return f"{kind}-{name}"[:_LONGEST]


def answer_id(exercise: str) -> str:
    """The id of the cell for an answer, and its grade_id."""
    return cell_id("answer", exercise)


def is_answer(identity: str) -> bool:
    """Whether a cell with this id is there for an answer."""
    return identity.startswith("answer-")


def checked_exercise(identity: str) -> str | None:
    """The exercise, in its first letters, that the cell with this id checks; None for others."""
    return identity.removeprefix("check-") if identity.startswith("check-") else None


def check_id(exercise: str) -> str:
    """The id of the cell that checks it."""
    return cell_id("check", exercise)
