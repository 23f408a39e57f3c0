"""Grade a whole folder: every student, every exercise, in parallel, going on where it stopped.

A verdict is kept as soon as it is taken, under a name made of everything that it depends on: the
answer and what it needs, the exercise, the hidden inputs, this version of the course. So a second
start repeats nothing, and an answer that has changed is graded anew.
"""

import concurrent.futures
import contextlib
import hashlib
import json
import math
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from nbformat import NotebookNode

from course_lib.checks import seeds
from course_lib.checks.exercise import Exercise
from course_lib.checks.sandbox.grading import Grader
from course_lib.checks.sandbox.isolation import Limits
from course_lib.checks.verdict import Verdict
from course_lib.classroom.cell_ids import answer_id

from .assignment import (
    Assignment,
    Needed,
    assemble,
    read_assignment,
)
from .history import Earlier, History, digest
from .similar import Similar, similar_answers
from .submissions import Found, Submission, collect
from .transplant import Answers, Unreadable, read_cells, read_script, take_answers

PASSED, FAILED, UNTOUCHED, MISSING = "passed", "failed", "not attempted", "missing"
PARTLY = "partly passed"
_LIBRARY = Path(__file__).resolve().parents[2]
_TIME_IS_UP = ("had not finished after", "did not finish in time")


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


@dataclass(frozen=True)
class Graded:
    """The outcome of a batch.

    isolated: runs had file systems and networks of their own. similar: who has the same answers.
    """

    reports: list[Report]
    lessons: list[str]
    isolated: bool
    similar: list[Similar] = field(default_factory=list)

    @property
    def is_odd(self) -> bool:
        """Whether something needs a person's eye."""
        return any(report.odd or report.notes for report in self.reports)


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


def grade(
    submissions: Path,
    out: Path,
    notebooks: Mapping[str, NotebookNode],
    exercises: Mapping[str, Exercise],
    settings: Settings | None = None,
    progress: Callable[[int, int, str], None] = lambda done, total, name: None,
    own: Mapping[str, str] | None = None,
) -> Graded:
    """Grade `submissions` against the untouched `notebooks`; verdicts are kept in `out`.

    own: the course's answers, by the ids of their cells, which nobody is alike for giving.
    Raises `ValueError` for folders that cannot be, an unknown lesson, or no submission at all.
    """
    settings = settings or Settings()
    if submissions.resolve() in (out.resolve(), *out.resolve().parents):
        raise ValueError(f"the report cannot be inside the submissions: {out}")
    if unknown := set(settings.points) - set(exercises):
        raise ValueError(f"points for {', '.join(sorted(unknown))}, and there is no such exercise")
    assignments = _assignments(notebooks, exercises)
    if unknown := set(settings.lessons) - set(assignments):
        raise ValueError(f"no lesson {', '.join(sorted(unknown))}: {', '.join(assignments)}")
    number, parts = settings.part
    if not 1 <= number <= parts:
        raise ValueError(f"there is no part {number} of {parts}")
    if parts > 1 and not settings.lessons:
        raise ValueError("parts do not know what others handed in: say what was assigned")
    mine = collect(submissions, [*assignments])[number - 1 :: parts]
    taken = [_Taken(each, assignments) for each in mine]
    if not taken:
        raise ValueError(f"there is no submission in {submissions}")
    found = {lesson for each in taken for lesson in each.answers}
    lessons = [n for n in assignments if n in (settings.lessons or found or set(assignments))]
    store = _Store(out)
    with Grader(settings.limits, settings.isolated) as grader:
        batch = _Batch(grader, store, exercises, assignments, settings)
        reports = batch.run(taken, lessons, progress)
        for report in reports:
            _remember(report, out)
        similar = _similar(reports, [assignments[name] for name in lessons], own or {})
        return Graded(reports, lessons, grader.isolated, similar)


def _remember(report: Report, out: Path) -> None:
    now = {
        r.exercise: Earlier(
            digest(report.answers.get(r.exercise, "")), r.status, r.points, r.maximum
        )
        for r in report.results
    }
    before = History(out, report.student).remember(now)
    report.results = [replace(r, earlier=before[r.exercise]) for r in report.results]


def _similar(
    reports: Sequence[Report], assignments: Sequence[Assignment], own: Mapping[str, str]
) -> list[Similar]:
    stubs = {name: a.stub(name) for a in assignments for name in a.answers}
    courses = {name: own[answer_id(name)] for name in stubs if answer_id(name) in own}
    return similar_answers({r.student: r.answers for r in reports}, stubs, courses)


def _assignments(
    notebooks: Mapping[str, NotebookNode], exercises: Mapping[str, Exercise]
) -> dict[str, Assignment]:
    names: dict[str, list[str]] = {lesson: [] for lesson in notebooks}
    for name, exercise in exercises.items():
        names.get(exercise.notebook, []).append(name)
    return {
        lesson: read_assignment(lesson, notebook, names[lesson])
        for lesson, notebook in notebooks.items()
        if names[lesson]
    }


# ---------------------------------------------------------------------------------------------


class _Taken:
    """A submission sorted out: answers by lesson, and what was odd."""

    def __init__(self, submission: Submission, assignments: Mapping[str, Assignment]):
        self.student = submission.student
        self.answers: dict[str, Answers] = {}
        self.changed: dict[str, float] = {}  # lesson -> when its notebook was written
        self.broken: dict[str, str] = {}  # lesson -> why its notebook cannot be read
        self.odd: list[tuple[str, str, bytes | None]] = [(p, r, None) for p, r in submission.odd]
        self.notes: list[str] = []
        found: dict[str, list[tuple[Found, Answers]]] = {}
        for notebook in submission.notebooks:
            try:
                read = read_script if notebook.script else read_cells
                cells = read(notebook.content)
            except Unreadable as problem:
                self.odd.append((notebook.path, str(problem), notebook.content))
                if lesson := _by_name(notebook.stem, assignments):
                    self.broken[lesson] = str(problem)
                continue
            taken = {name: take_answers(cells, a) for name, a in assignments.items()}
            called = _by_name(notebook.stem, assignments)
            lesson = max(taken, key=lambda name: (len(taken[name].sources), name == called))
            if called and not taken[lesson].sources:
                lesson = called
            if called and called != lesson:
                reason = f"is called like {called}, and answers {lesson}"
                self.odd.append((notebook.path, reason, notebook.content))
            if not taken[lesson].sources and not called:
                reason = "is no notebook of this course: none of its cells answers an exercise"
                self.odd.append((notebook.path, reason, notebook.content))
                continue
            found.setdefault(lesson, []).append((notebook, taken[lesson]))
        for lesson, versions in found.items():
            self._choose(lesson, versions)
        if not submission.notebooks:
            self.notes.append("no notebook was handed in")

    def _choose(self, lesson: str, versions: list[tuple[Found, Answers]]) -> None:
        """The version that counts: the newest notebook; of equally old ones, the plainest name.

        Code that was exported counts where there is no notebook, and a person is told of it.
        """
        versions.sort(key=lambda v: (not v[0].script, v[0].changed, v[0].stem == lesson, v[0].path))
        notebook, answers = versions[-1]
        self.answers[lesson] = answers
        self.changed[lesson] = notebook.changed
        if notebook.script:
            reason = "is Python code and no notebook: taken as if it were one"
            self.odd.append((notebook.path, reason, notebook.content))
        if len(versions) > 1:
            others = ", ".join(other.path for other, _ in versions[:-1])
            self.notes.append(f"{lesson}: {notebook.path} counts, the newest; not {others}")
        for exercise, notes in answers.notes.items():
            for note in notes:
                reason = f"{exercise}: {note}" if exercise else note
                self.odd.append((notebook.path, reason, notebook.content))


def _by_name(stem: str, assignments: Mapping[str, Assignment]) -> str | None:
    lowered = stem.lower()
    return next((name for name in assignments if name.lower() in lowered), None)


# ---------------------------------------------------------------------------------------------


class _Store:
    """Verdicts that were taken, one file each, and the secret behind the hidden inputs."""

    def __init__(self, out: Path):
        self._folder = out / "verdicts"
        self._folder.mkdir(parents=True, exist_ok=True)
        out.chmod(0o700)
        secret = self._folder / "secret"
        unfinished = self._write_aside(secret, secrets.token_hex(16))
        with contextlib.suppress(FileExistsError):  # by whoever grades another part at this moment
            os.link(unfinished, secret)
        unfinished.unlink()
        self.secret = secret.read_text()
        files = sorted(_LIBRARY.rglob("*.py"))
        self._course = hashlib.sha256(b"\0".join(f.read_bytes() for f in files)).hexdigest()

    def key(self, needed: Needed) -> str:
        pieces = [(PurePosixPath(p.file).name, p.source) for p in needed.program.pieces]
        parts = [self._course, self.secret, needed.program.name, pieces, needed.imports]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]

    def read(self, key: str) -> dict | None:
        try:
            return json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def write(self, key: str, verdict: dict) -> None:
        self._write(self._folder / f"{key}.json", json.dumps(verdict))

    def _write(self, path: Path, text: str) -> None:
        self._write_aside(path, text).rename(path)

    def _write_aside(self, path: Path, text: str) -> Path:
        unfinished = path.with_suffix(f".{secrets.token_hex(4)}")
        try:
            unfinished.write_text(text, encoding="utf-8")
        except OSError:  # a full disk: what is half written is of no use
            unfinished.unlink(missing_ok=True)
            raise
        return unfinished


class _Batch:
    def __init__(
        self,
        grader: Grader,
        store: _Store,
        exercises: Mapping[str, Exercise],
        assignments: Mapping[str, Assignment],
        settings: Settings,
    ):
        self._grader, self._store = grader, store
        self._exercises, self._assignments = exercises, assignments
        self._settings = settings
        self._jobs = settings.jobs or max(1, len(os.sched_getaffinity(0)))
        self._lock = threading.Lock()
        self._running: dict[str, threading.Lock] = {}

    def run(
        self,
        submissions: Sequence[_Taken],
        lessons: Sequence[str],
        progress: Callable[[int, int, str], None],
    ) -> list[Report]:
        tasks = [
            (taken, lesson, exercise)
            for taken in submissions
            for lesson in lessons
            for exercise in self._assignments[lesson].answers
            if exercise in (self._settings.only or self._exercises)
        ]
        reports = {t.student: Report(t.student, notes=t.notes, odd=t.odd) for t in submissions}
        with concurrent.futures.ThreadPoolExecutor(self._jobs) as pool:
            futures = [pool.submit(self._result, *task) for task in tasks]
            students = {f: task[0].student for f, task in zip(futures, tasks, strict=True)}
            try:
                for done, future in enumerate(concurrent.futures.as_completed(futures), start=1):
                    future.result()
                    progress(done, len(tasks), students[future])
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                self._grader.close()
                raise
        for (taken, lesson, exercise), future in zip(tasks, futures, strict=True):
            report = reports[taken.student]
            result = future.result()
            report.results.append(result)
            if result.flag:
                report.notes.append(f"{exercise}: {result.flag}")
            if lesson in taken.answers:
                report.answers[exercise] = taken.answers[lesson].sources.get(exercise, "")
        for taken in submissions:
            for lesson in lessons:
                deadline = self._settings.deadline
                if deadline and (days := deadline.days(taken.changed.get(lesson, 0.0))):
                    late = f"{lesson}: {days} day{'s' * (days > 1)} late"
                    reports[taken.student].notes.append(late)
                if lesson not in taken.answers and not taken.notes:
                    why = taken.broken.get(lesson, "was not handed in")
                    reports[taken.student].notes.append(f"{lesson}: {why}")
        return list(reports.values())

    def _result(self, taken: _Taken, lesson: str, exercise: str) -> Result:
        worth = self._settings.points.get(exercise, self._exercises[exercise].points)
        answers = taken.answers.get(lesson)
        if answers is None or exercise not in answers.sources:
            return Result(lesson, exercise, MISSING, 0, worth)
        notes = tuple(answers.notes.get(exercise, ()))
        assignment = self._assignments[lesson]
        if assignment.is_untouched(exercise, answers.sources[exercise]):
            return Result(lesson, exercise, UNTOUCHED, 0, worth, notes=notes)
        needed = assemble(assignment, exercise, answers.sources, answers.additions)
        verdict = self._verdict(exercise, needed)
        status, message, flag = verdict["status"], verdict["message"], verdict["flag"]
        share = {PASSED: 1.0, PARTLY: self._settings.partial}.get(status, 0.0)
        points = worth * share * self._left(taken, lesson)
        if status == PARTLY:
            message += f"\nThe result itself is right in every case: {share:.0%} of the points."
        notes += needed.notes
        return Result(lesson, exercise, status, points, worth, message, notes, flag)

    def _left(self, taken: _Taken, lesson: str) -> float:
        """The share of its points that a lesson has left, for the day it was handed in."""
        deadline = self._settings.deadline
        return deadline.left(taken.changed[lesson]) if deadline else 1.0

    def _verdict(self, exercise: str, needed: Needed) -> dict:
        """From the store, or taken now. Equal answers at the same time are run once."""
        key = self._store.key(needed)
        with self._lock:
            turn = self._running.setdefault(key, threading.Lock())
        with turn:
            if kept := self._store.read(key):
                return kept
            verdict = self._take(self._exercises[exercise], needed)
            self._store.write(key, verdict)
            return verdict

    def _take(self, exercise: Exercise, needed: Needed) -> dict:
        """A new verdict. Who ran out of time has a second go: the machine may have been busy."""
        verdict = self._run(exercise, needed)
        if _out_of_time(verdict):
            verdict = self._run(exercise, needed)
        message = str(verdict).split("\nA hint: ")[0]
        return {
            "status": _status(verdict),
            "message": "" if verdict.passed else message,
            "flag": _flag(verdict),
        }

    def _run(self, exercise: Exercise, needed: Needed) -> Verdict:
        rng = seeds.hidden(exercise.name, self._store.secret)
        return self._grader.verdict(exercise, needed.program, rng, needed.imports)


def _status(verdict: Verdict) -> str:
    if verdict.passed:
        return PASSED
    if verdict.right_result:
        return PARTLY
    return FAILED if verdict.attempted else UNTOUCHED


def _flag(verdict: Verdict) -> str:
    """Why a person should look at an answer that did not pass."""
    if _out_of_time(verdict):
        return "it ran out of time, twice: if this machine is busy, grade again with fewer --jobs"
    trouble = verdict.failure.outcome.trouble if verdict.failure else None
    if trouble and trouble.kind == "signature":
        return "there is an answer, and it could not be run: have a look at it"
    return ""


def _out_of_time(verdict: Verdict) -> bool:
    trouble = verdict.failure.outcome.trouble if verdict.failure else None
    return trouble is not None and any(words in trouble.report for words in _TIME_IS_UP)
