"""Grade a whole folder: every student, every exercise, in parallel, going on where it stopped."""

import concurrent.futures
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nbformat import NotebookNode

from course_lib.checks import seeds
from course_lib.checks.exercise import Exercise
from course_lib.checks.sandbox.grader import Grader
from course_lib.checks.sandbox.loopback_traffic import CROSSED
from course_lib.checks.verdict import Verdict
from course_lib.classroom.cell_ids import answer_id

from .assignment import Assignment, Needed, assemble, read_assignment
from .history import Earlier, History, digest
from .newest_version import Sorted
from .points import FAILED, MISSING, PARTLY, PASSED, UNTOUCHED, Report, Result, earned
from .settings import Settings
from .similarity import Similar, similar_answers
from .submissions import collect
from .verdict_cache import VerdictStore


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
    taken = [Sorted(each, assignments) for each in mine]
    if not taken:
        raise ValueError(f"there is no submission in {submissions}")
    found = {lesson for each in taken for lesson in each.answers}
    lessons = [n for n in assignments if n in (settings.lessons or found or set(assignments))]
    store = VerdictStore(out)
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


class _Batch:
    def __init__(
        self,
        grader: Grader,
        store: VerdictStore,
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
        submissions: Sequence[Sorted],
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

    def _result(self, taken: Sorted, lesson: str, exercise: str) -> Result:
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
        partial = self._settings.partial
        points = earned(status, worth, partial, self._left(taken, lesson))
        if status == PARTLY:
            message += f"\nThe result itself is right in every case: {partial:.0%} of the points."
        notes += needed.notes
        return Result(lesson, exercise, status, points, worth, message, notes, flag)

    def _left(self, taken: Sorted, lesson: str) -> float:
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
        """A new verdict. What ran out of time gets a second go: the machine may be busy."""
        verdict = self._run(exercise, needed)
        if verdict.out_of_time:
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
    if verdict.out_of_time:
        return "it ran out of time, twice: if this machine is busy, grade again with fewer --jobs"
    trouble = verdict.failure.outcome.trouble if verdict.failure else None
    if trouble and trouble.kind == "signature":
        return "there is an answer, and it could not be run: have a look at it"
    seen = verdict.failure.outcome.observations if verdict.failure else []
    if any(CROSSED in breach.sentence for each in seen for breach in each.breaches):
        return "its ranks sent something else than was recorded: have a look before you judge"
    return ""
