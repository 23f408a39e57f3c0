"""Time-outs that nobody sits out: time leaps once there is nothing left to happen."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from course_lib.observe import read_trace
from course_lib.ranks import watchdog

SECONDS = 120.0  # a time-out that no run comes near by itself
_BETWEEN = 0.2  # seconds between two looks


class LeapingClock:
    """A clock that goes on by `SECONDS` when `ready()` has said the same twice, and not nothing."""

    def __init__(self, ready: Callable[[], object]) -> None:
        self.ready = ready
        self.leapt, self.looked, self.said = 0.0, 0.0, None

    def monotonic(self) -> float:
        now = time.monotonic()
        if not self.leapt and now - self.looked > _BETWEEN:
            said, before = self.ready(), self.said
            self.looked, self.said = now, said
            self.leapt = SECONDS if said and said == before else 0.0
        return now + self.leapt

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def leap_when(monkeypatch: pytest.MonkeyPatch, ready: Callable[[], object]) -> None:
    """Let runs take their time-outs from such a clock."""
    monkeypatch.setattr(watchdog, "time", LeapingClock(ready))


def only_one_runs(folder: Path) -> list[int]:
    """How much the ranks of the run in `folder` have written, if all but one wait or are done."""
    journals = {int(own.name): own / "journal" for own in folder.glob("ranks-*/*") if own.is_dir()}
    if not all(path.exists() for path in journals.values()):
        return []
    trace = read_trace(journals)
    running = [
        rank
        for rank, path in journals.items()
        if not (path.parent / "result").exists() and trace.waiting(rank) is None
    ]
    return [path.stat().st_size for path in journals.values()] if len(running) == 1 else []
