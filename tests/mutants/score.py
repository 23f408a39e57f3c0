"""Put every mutant to its check, several at a time, and remember what came of it.

What was tried is kept in a file, so that a second run tries only what has changed: a rejection is
kept as long as the mutant and the exercise's own check are the same; what passed is tried again as
soon as any source that a verdict is made of is another. `make clean` forgets it all.

Ranks that run out of time may only have been slow. So all mutants get little time at first, and
those to which it was too little are tried again at the end, one by one, with the exercise's own.
"""

import contextlib
import hashlib
import json
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

import course_lib
from course_lib.checks import seeds
from course_lib.checks.check_in_kernel import run_briefly
from course_lib.checks.exercise import Exercise, Observation
from course_lib.checks.judging import judge_case
from course_lib.checks.registry import all_exercises
from course_lib.observe import Trace

from .answers import answer
from .changes import Change, changes
from .equivalent import SAME

_ROOT = Path(course_lib.__file__).parent
KEPT = Path(__file__).parents[2] / "build" / "mutants.json"
_SECONDS_HERE = 5.0  # of the processor, so that it says the same on a busy machine
_SECONDS_ON_RANKS = 8.0
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
    """What the check made of a mutant: passed or not, its message, and whether time was up."""

    mutant: Mutant
    passed: bool
    message: str
    out_of_time: bool = False

    @property
    def survived(self) -> bool:
        """It passed, and nobody has said why it may."""
        return self.passed and not self.mutant.why_same

    @property
    def explained_in_vain(self) -> bool:
        """The check tells it from the answer that it is said to be the same as."""
        return not self.passed and bool(self.mutant.why_same)


def mutants(exercise: Exercise) -> list[Mutant]:
    """All mutants of the lesson's answer."""
    own = answer(exercise)
    return [Mutant(exercise.name, change) for change in changes(own.cell, exercise.name)]


def put_to_the_check(mutant: Mutant, timeout: float | None = None) -> Fate:
    """Define the mutant and check it; one that cannot be defined is rejected too.

    timeout: seconds for the ranks of each run, instead of the exercise's own.
    """
    exercise = all_exercises()[mutant.exercise]
    try:
        fn = answer(exercise).defined(mutant.change.source)
    except Exception as error:  # as its cell would say
        return Fate(mutant, False, f"{type(error).__name__}: {error}")
    if message := fails_here(exercise, fn):
        return Fate(mutant, False, message)
    verdict = run_briefly(exercise, fn, seeds.public(exercise.name), timeout)
    return Fate(mutant, verdict.passed, str(verdict), verdict.out_of_time)


def fails_here(exercise: Exercise, fn: Callable) -> str:
    """Why it fails where a call needs no other rank, in this process and at once; else ""."""
    cases = exercise.cases(seeds.public(exercise.name))
    if exercise.contract.allowed != frozenset() or {c.world_size for c in cases} != {1}:
        return ""
    try:
        with _at_most(_SECONDS_HERE):
            for case in cases:
                seen = Observation([exercise.on_rank(fn, case)], Trace(1, []))
                if finding := judge_case(exercise, case, seen):
                    return finding.likely
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@contextlib.contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Raises `TimeoutError` in what computes for longer; some mutants go round for ever."""

    def stop(*_: object) -> NoReturn:
        raise TimeoutError(f"took more than {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fates(chosen: Sequence[Mutant], jobs: int, kept: Path | None = KEPT) -> Iterator[Fate]:
    """What the checks make of them, as it comes in; what was tried before comes first."""
    known = _read(kept)
    rest = []
    for mutant in chosen:
        found = known.get(_digest(mutant))
        if found is not None and (not found["passed"] or found["library"] == _library()):
            yield Fate(mutant, bool(found["passed"]), str(found["message"]))
        else:
            rest.append(mutant)
    for fate in _tried_twice(rest, jobs):
        known[_digest(fate.mutant)] = {
            "passed": fate.passed,
            "message": fate.message,
            "library": _library(),
        }
        if kept:
            kept.parent.mkdir(exist_ok=True)
            unfinished = kept.with_suffix(".part")
            unfinished.write_text(json.dumps(known), encoding="utf-8")
            unfinished.replace(kept)
        yield fate


def _tried_twice(rest: Sequence[Mutant], jobs: int) -> Iterator[Fate]:
    slow = []
    for fate in _tried(rest, jobs, _SECONDS_ON_RANKS):
        if fate.out_of_time:
            slow.append(fate.mutant)
        else:
            yield fate
    yield from _tried(slow, 1, None)


def _tried(rest: Sequence[Mutant], jobs: int, timeout: float | None) -> Iterator[Fate]:
    if jobs == 1 or len(rest) < 2:
        for mutant in rest:
            yield put_to_the_check(mutant, timeout)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        tries = [pool.submit(put_to_the_check, mutant, timeout) for mutant in rest]
        for done in as_completed(tries):
            yield done.result()


def _read(kept: Path | None) -> dict[str, dict]:
    if kept is None or not kept.exists():
        return {}
    return json.loads(kept.read_text(encoding="utf-8"))


def _digest(mutant: Mutant) -> str:
    exercise = all_exercises()[mutant.exercise]
    own, lesson = answer(exercise), _ROOT / "checks" / "exercises" / f"nb{exercise.notebook}"
    check = _fingerprint(lesson, f"{exercise.name}.py") + _fingerprint(lesson, "_*.py")
    text = "\n".join((mutant.exercise, own.above, mutant.change.source, check))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _library() -> str:
    """Of all that a verdict depends on."""
    return "".join(_fingerprint(_ROOT / room, "*.py")[:8] for room in _ROOMS)


@cache
def _fingerprint(folder: Path, files: str) -> str:
    digest = hashlib.sha256()
    for file in sorted(folder.rglob(files)):
        digest.update(file.read_bytes())
    return digest.hexdigest()
