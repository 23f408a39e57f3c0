"""What a student has for each exercise, and in all; and what late days cost."""

import math
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from .history import Earlier

PASSED, FAILED, UNTOUCHED, MISSING = "passed", "failed", "not attempted", "missing"
PARTLY = "partly passed"


@dataclass(frozen=True)
class Result:
    """What a student has for one exercise.

    message: what was wrong, with a counter-example. flag: why a person should look at it. earlier:
    the verdicts on other answers, by runs before this one into the same report.
    """

    lesson: str
    exercise: str
    status: str
    points: float
    maximum: float
    message: str = ""
    notes: tuple[str, ...] = ()
    flag: str = ""
    earlier: tuple[Earlier, ...] = ()

    @property
    def is_wrong(self) -> bool:
        """Whether there is an answer, and something is wrong with it."""
        return self.status in (FAILED, PARTLY)


@dataclass
class Report:
    """All results of a student; notes about the notebooks; (file, reason, content) of odd ones."""

    student: str
    results: list[Result] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    odd: list[tuple[str, str, bytes | None]] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)

    @property
    def points(self) -> float:
        return sum(result.points for result in self.results)

    @property
    def maximum(self) -> float:
        return sum(result.maximum for result in self.results)

    def all_notes(self) -> list[str]:
        """What there is to say of notebooks, odd files and answers, each once."""
        notes = [*self.notes, *(f"{PurePosixPath(f).name}: {why}" for f, why, _ in self.odd)]
        notes += [f"{r.exercise}: {note}" for r in self.results for note in r.notes]
        return list(dict.fromkeys(notes))


def earned(status: str, worth: float, partial: float, left: float) -> float:
    """Points for an answer: all for a right one, the share `partial` for one with a right result.

    partial: what an answer has whose result is right in every case, though it sent more than it may
        or broke a law. left: the share that late days have left.
    """
    share = {PASSED: 1.0, PARTLY: partial}.get(status, 0.0)
    return worth * share * left


@dataclass(frozen=True)
class Deadline:
    """When a lesson was due, in seconds since 1970, and which share each late day begun costs.

    The age of a file is what its archive or file system says: what a platform packs anew, or git
    checks out, has lost it.
    """

    due: float
    share: float

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ValueError(f"a late day costs a share of 0 to 1, not {self.share:g}")

    def days(self, changed: float) -> int:
        return max(0, math.ceil((changed - self.due) / 86_400))

    def left(self, changed: float) -> float:
        """The share of the points that is left."""
        return max(0.0, 1 - self.share * self.days(changed))
