"""Put every mutant to its check, several at a time, and remember what came of it.

What was tried is kept in a file, by the mutant's own source and by all sources that a check is made
of, so that a second run tries only what has changed.
"""

import hashlib
import json
import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import course_lib
from course_lib.checks import seeds
from course_lib.checks.exercise import Exercise
from course_lib.checks.registry import all_exercises
from course_lib.checks.runner import run_check

from .answers import answer
from .changes import Change, changes
from .same import SAME

KEPT = Path(__file__).parents[2] / "build" / "mutants.json"
_ROOMS = ("checks", "observe", "ranks", "models", "simulate")


@dataclass(frozen=True)
class Mutant:
    """A change to the lesson's answer to an exercise."""

    exercise: str
    change: Change

    @property
    def why_same(self) -> str:
        """Why it may pass; "" if it may not."""
        return SAME.get(self.exercise, {}).get(self.change.key, "")


@dataclass(frozen=True)
class Fate:
    """What the check made of a mutant: passed or not, and its message."""

    mutant: Mutant
    passed: bool
    message: str

    @property
    def survived(self) -> bool:
        """It passed, and nobody has said why it may."""
        return self.passed and not self.mutant.why_same


def mutants(exercise: Exercise) -> list[Mutant]:
    """All mutants of the lesson's answer."""
    own = answer(exercise)
    return [Mutant(exercise.name, change) for change in changes(own.cell, exercise.name)]


def put_to_the_check(mutant: Mutant) -> Fate:
    """Define the mutant and check it; one that cannot be defined is rejected too."""
    exercise = all_exercises()[mutant.exercise]
    try:
        fn = answer(exercise).defined(mutant.change.source)
    except Exception as error:  # as its cell would say
        return Fate(mutant, False, f"{type(error).__name__}: {error}")
    verdict = run_check(exercise, fn, seeds.public(exercise.name))
    return Fate(mutant, verdict.passed, str(verdict))


def fates(chosen: Sequence[Mutant], jobs: int, kept: Path | None = KEPT) -> Iterator[Fate]:
    """What the checks make of them, as it comes in; what was tried before comes first."""
    known = _read(kept)
    rest = []
    for mutant in chosen:
        if (found := known.get(_digest(mutant))) is not None:
            yield Fate(mutant, bool(found["passed"]), str(found["message"]))
        else:
            rest.append(mutant)
    for fate in _tried(rest, jobs):
        known[_digest(fate.mutant)] = {"passed": fate.passed, "message": fate.message}
        if kept:
            kept.parent.mkdir(exist_ok=True)
            unfinished = kept.with_suffix(".part")
            unfinished.write_text(json.dumps(known), encoding="utf-8")
            unfinished.replace(kept)
        yield fate


def _tried(rest: Sequence[Mutant], jobs: int) -> Iterator[Fate]:
    if jobs == 1 or len(rest) < 2:
        yield from map(put_to_the_check, rest)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for done in as_completed([pool.submit(put_to_the_check, mutant) for mutant in rest]):
            yield done.result()


def _read(kept: Path | None) -> dict[str, dict]:
    if kept is None or not kept.exists():
        return {}
    return json.loads(kept.read_text(encoding="utf-8"))


def _digest(mutant: Mutant) -> str:
    own = answer(all_exercises()[mutant.exercise])
    text = "\n".join((mutant.exercise, own.above, mutant.change.source, _library()))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@cache
def _library() -> str:
    """A fingerprint of all that a verdict depends on."""
    root = Path(course_lib.__file__).parent
    digest = hashlib.sha256()
    for file in _files(root):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _files(root: Path) -> Iterable[Path]:
    return (file for room in _ROOMS for file in sorted((root / room).rglob("*.py")))
