"""All lessons of a course: build their notebooks, and say where those are stale or wrong."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat import NotebookNode

from .answer_leaks import answer_pieces, leaks
from .contract_notes import Worded, with_contracts
from .kernels import leave_cores, use_ipc
from .lesson import Lesson, LessonError, read_lesson
from .stored_outputs import complaints, normalise
from .student_notebook import solution_notebook, student_notebook

CELL_TIMEOUT = 300  # seconds


class Graded(Protocol):
    """What the classroom needs to know of an exercise."""

    @property
    def notebook(self) -> str: ...

    @property
    def points(self) -> int: ...

    @property
    def contract(self) -> Worded: ...


class Problem(NamedTuple):
    """Something to mend: a file, relative to the course, and what is wrong with it."""

    file: str
    sentence: str

    def __str__(self) -> str:
        return f"{self.file}: {self.sentence}"


@dataclass(frozen=True)
class Course:
    """Sources and executed notebooks in `root`/solutions, students' notebooks in `root`/notebooks.

    exercises: all that can be checked, by name.
    """

    root: Path
    exercises: Mapping[str, Graded]

    @cached_property
    def lessons(self) -> dict[str, Lesson]:
        """Name -> lesson, in order. Raises `LessonError` where a source is not as it must be."""
        contracts = {name: exercise.contract for name, exercise in self.exercises.items()}
        lessons = map(read_lesson, sorted((self.root / "solutions").glob("*.py")))
        return {lesson.name: with_contracts(lesson, contracts) for lesson in lessons}

    @cached_property
    def answer_pieces(self) -> dict[str, set[str]]:
        """Exercise -> what would give its answer away, over all lessons."""
        lessons = self.lessons.values()
        return {name: given for each in lessons for name, given in answer_pieces(each).items()}

    def build(self, names: Collection[str] = (), execute: bool = False) -> Iterator[Problem]:
        """Write the notebooks of the named lessons (default: all); yields what keeps any from it.

        Outputs stay where no code cell has changed. Where one has, or a lesson is named, it is run
        if `execute` says so.
        """
        for lesson in self._lessons_of(names):
            if problems := [*self._mismatches(lesson), *self._leaks(lesson), *self._work(lesson)]:
                yield from problems
                continue
            solution = solution_notebook(lesson, self._points)
            path = self._solution_path(lesson)
            kept = _keep_outputs(solution, path)
            if execute and (lesson.name in names or not kept):
                try:
                    _execute(solution, path)
                except LessonError as error:
                    yield Problem(self._relative(path), str(error))
                    continue
            elif not kept:
                yield Problem(self._relative(path), "its code has changed: run `make notebooks`")
                continue
            yield from self._unfit_outputs(lesson, solution)
            _write(solution, path)
            _write(student_notebook(lesson, self._points), self._student_path(lesson))

    def problems(self, names: Collection[str] = ()) -> Iterator[Problem]:
        """All that is stale, leaks, is missing or does not belong; nothing is written.

        names: look only at these lessons.
        """
        for lesson in self._lessons_of(names):
            if mismatches := list(self._mismatches(lesson)):
                yield from mismatches
                continue
            yield from self._leaks(lesson)
            student, path = student_notebook(lesson, self._points), self._student_path(lesson)
            if work := list(self._work(lesson)):
                yield from work
            elif _read(path) != _text(_with_language_of(path, student)):
                yield self._stale(path, lesson)
            solution, path = solution_notebook(lesson, self._points), self._solution_path(lesson)
            if not _keep_outputs(solution, path):
                yield self._stale(path, lesson)
                continue
            normalise(solution)
            if _read(path) != _text(solution):
                yield self._stale(path, lesson)
            yield from self._unfit_outputs(lesson, solution)
        if not names:
            yield from self._strays()
        yield from self._missing_exercises(names)

    # -----------------------------------------------------------------------------------------

    def _lessons_of(self, names: Collection[str]) -> list[Lesson]:
        """The named lessons, or all. Raises `ValueError` for a name that none has."""
        if unknown := set(names) - set(self.lessons):
            raise ValueError(f"no lesson {', '.join(sorted(unknown))}: {', '.join(self.lessons)}")
        return [self.lessons[name] for name in names or self.lessons]

    @property
    def _points(self) -> dict[str, int]:
        return {name: exercise.points for name, exercise in self.exercises.items()}

    def _solution_path(self, lesson: Lesson) -> Path:
        return self.root / "solutions" / f"{lesson.name}.ipynb"

    def _student_path(self, lesson: Lesson) -> Path:
        return self.root / "notebooks" / f"{lesson.name}.ipynb"

    def _relative(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _stale(self, path: Path, lesson: Lesson) -> Problem:
        sentence = f"is not what solutions/{lesson.name}.py makes: run `make notebooks`"
        return Problem(self._relative(path), sentence)

    def _mismatches(self, lesson: Lesson) -> Iterator[Problem]:
        file = f"solutions/{lesson.name}.py"
        answered, checked = lesson.named("answer"), lesson.named("check")
        for name in dict.fromkeys([*answered, *checked]):
            if name not in self.exercises:
                yield Problem(file, f"the checks know no exercise {name}")
            elif self.exercises[name].notebook != lesson.name:
                home = self.exercises[name].notebook
                yield Problem(file, f"{name} belongs to {home}, as the checks know it")
            elif (answered.count(name), checked.count(name)) != (1, 1):
                yield Problem(
                    file,
                    f"{name} needs one answer cell and one check cell, and has"
                    f" {answered.count(name)} and {checked.count(name)}",
                )

    def _leaks(self, lesson: Lesson) -> Iterator[Problem]:
        student = student_notebook(lesson, self._points)
        for leak in leaks(student, lesson, self.answer_pieces):
            yield Problem(self._relative(self._student_path(lesson)), leak)

    def _work(self, lesson: Lesson) -> Iterator[Problem]:
        """A student's notebook that was run holds somebody's work: nothing may overwrite it."""
        path = self._student_path(lesson)
        if path.exists():
            cells = nbformat.read(path, as_version=4).cells
            if any(cell.get("execution_count") is not None for cell in cells):
                sentence = "holds your work: save it under another name, elsewhere, then run"
                yield Problem(
                    self._relative(path), f"{sentence} `git restore {self._relative(path)}`"
                )

    def _unfit_outputs(self, lesson: Lesson, solution: NotebookNode) -> Iterator[Problem]:
        for number, cell in enumerate(solution.cells, start=1):
            if cell.cell_type == "code":
                for complaint in complaints(cell):
                    file = self._relative(self._solution_path(lesson))
                    yield Problem(file, f"cell {number} ({_first_line(cell)}) {complaint}")

    def _strays(self) -> Iterator[Problem]:
        wanted = {self._solution_path(lesson) for lesson in self.lessons.values()}
        wanted |= {self._student_path(lesson) for lesson in self.lessons.values()}
        for folder in ("solutions", "notebooks"):
            for path in sorted((self.root / folder).rglob("*.ipynb")):
                if path not in wanted and ".ipynb_checkpoints" not in path.parts:
                    yield Problem(self._relative(path), "has no source in solutions/")

    def _missing_exercises(self, names: Collection[str]) -> Iterator[Problem]:
        for name, exercise in self.exercises.items():
            lesson = self.lessons.get(exercise.notebook)
            if names and exercise.notebook not in names:
                continue
            if lesson is None:
                yield Problem(f"solutions/{exercise.notebook}.py", f"is missing, home of {name}")
            elif name not in lesson.named("answer") + lesson.named("check"):
                yield Problem(f"solutions/{lesson.name}.py", f"lacks the cells of {name}")


def _with_language_of(path: Path, notebook: NotebookNode) -> NotebookNode:
    """With the Python that JupyterLab or the start page has noted in the file, which may be any."""
    if path.exists():
        noted = nbformat.read(path, as_version=4).metadata.get("language_info", {})
        if noted.get("name") == "python":
            notebook.metadata["language_info"] = noted
    return notebook


def _execute(notebook: NotebookNode, path: Path) -> None:
    """Run all cells in a fresh kernel, beside `path`; keep what may be stored of the outputs."""
    metadata = dict(notebook.metadata)
    use_ipc()
    leave_cores()
    client = NotebookClient(
        notebook,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(path.parent)}},
    )
    try:
        client.execute()
    except CellExecutionError as error:
        raise LessonError(
            f"a cell raises {error.ename}: {error.evalue}\n{error.traceback}"
        ) from None
    except CellTimeoutError as error:
        raise LessonError(str(error)) from None
    notebook.metadata = metadata  # without the version of the kernel that ran it
    normalise(notebook)


def _keep_outputs(notebook: NotebookNode, path: Path) -> bool:
    """Take over outputs from the notebook at `path` if it has the same code; were they?"""
    if not path.exists():
        return False
    new = [cell for cell in notebook.cells if cell.cell_type == "code"]
    stored = nbformat.read(path, as_version=4)
    old = [cell for cell in stored.cells if cell.cell_type == "code"]
    if [cell.source for cell in new] != [cell.source for cell in old]:
        return False
    if any(cell.execution_count is None for cell in old):
        return False
    for cell, source in zip(new, old, strict=True):
        cell.outputs, cell.execution_count = source.outputs, source.execution_count
    return True


def _text(notebook: NotebookNode) -> str:
    return nbformat.writes(notebook) + "\n"


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _write(notebook: NotebookNode, path: Path) -> None:
    nbformat.validate(notebook)
    path.parent.mkdir(exist_ok=True)
    if _read(path) != _text(notebook):
        path.write_text(_text(notebook), encoding="utf-8")


def _first_line(cell: NotebookNode) -> str:
    return cell.source.split("\n")[0][:60]
