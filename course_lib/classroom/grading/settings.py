"""How to grade: what was assigned, what it is worth, how many at a time, within which limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from course_lib.checks.sandbox.resource_limits import Limits

from .points import Deadline


@dataclass(frozen=True)
class Settings:
    """How to grade.

    lessons: the assigned ones (empty: those that somebody handed in). points: exercise -> worth,
    where it is not the exercise's own. jobs: answers at a time (0: one for each core). part: (2, 5)
    grades the second of five parts of the students. deadline: what later files lose. partial: the
    share of its points for a right result that breaks a promise, where an exercise separates them
    (`Contract.separate`). isolated: whether runs get namespaces (None: if the system has them).
    only: the exercises of the lessons that are graded (empty: all).

    Raises `ValueError` for a share that is none.
    """

    lessons: Sequence[str] = ()
    points: Mapping[str, float] = field(default_factory=dict)
    jobs: int = 0
    part: tuple[int, int] = (1, 1)
    deadline: Deadline | None = None
    partial: float = 0.5
    limits: Limits = field(default_factory=Limits)
    isolated: bool | None = None
    only: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.partial <= 1:
            raise ValueError(f"a right result is worth a share of 0 to 1, not {self.partial:g}")
