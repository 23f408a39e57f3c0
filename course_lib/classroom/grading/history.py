"""What a student's answers were worth before: kept in the report folder, a file for each student.

A new entry is written when the answer has changed. The same answer graded again, with other points
or by a newer course, replaces the last one.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Earlier:
    """The verdict on an answer; `answer` is a digest of its text ("" if there was none)."""

    answer: str
    status: str
    points: float
    maximum: float


def digest(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16] if source else ""


class History:
    """The verdicts on one student's answers, in the report folder `out`."""

    def __init__(self, out: Path, student: str):
        name = hashlib.sha256(student.encode("utf-8", "replace")).hexdigest()[:32]
        self._file = out / "history" / f"{name}.json"
        self._student = student

    def remember(self, now: Mapping[str, Earlier]) -> dict[str, tuple[Earlier, ...]]:
        """Keep the verdicts of this run; returns those on earlier answers, oldest first."""
        kept = self._read()
        for exercise, verdict in now.items():
            entries = kept.setdefault(exercise, [])
            if entries and entries[-1].answer == verdict.answer:
                entries[-1] = verdict
            else:
                entries.append(verdict)
        self._write(kept)
        return {exercise: tuple(kept[exercise][:-1]) for exercise in now}

    def _read(self) -> dict[str, list[Earlier]]:
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))["exercises"]
            return {name: [Earlier(**entry) for entry in kept[name]] for name in kept}
        except (OSError, ValueError, TypeError, KeyError):
            return {}

    def _write(self, kept: Mapping[str, list[Earlier]]) -> None:
        self._file.parent.mkdir(exist_ok=True)
        exercises = {name: [asdict(entry) for entry in kept[name]] for name in kept}
        text = json.dumps({"student": self._student, "exercises": exercises}, indent=1)
        unfinished = self._file.with_suffix(f".{secrets.token_hex(4)}")
        try:
            unfinished.write_text(text, encoding="utf-8")
            os.replace(unfinished, self._file)
        finally:
            unfinished.unlink(missing_ok=True)
