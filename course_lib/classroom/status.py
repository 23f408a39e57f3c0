"""How far a learner is: read from their notebooks and from what the checks noted beside them."""

import datetime
import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import nbformat
from nbformat import NotebookNode

from course_lib.checks import progress
from course_lib.classroom.handed_out import untouched
from course_lib.classroom.holes import NOT_ATTEMPTED

PASSED, CHANGED, BEGUN, OPEN = "passed", "passed before, changed since", "begun", "not attempted"
_MARKS = {PASSED: "✓", CHANGED: "~", BEGUN: "●", OPEN: "○"}
_KEPT = "kept"  # the folder for answers that were reset


class Homed(Protocol):
    """What is needed to know of an exercise: the notebook it is in."""

    notebook: str


@dataclass(frozen=True)
class Step:
    """An exercise: its name, its state and since when it has been passed."""

    exercise: str
    state: str
    since: str = ""


@dataclass(frozen=True)
class Status:
    """Steps of each lesson, in the order of the notebooks; in a notebook it draws itself."""

    lessons: dict[str, list[Step]] = field(repr=False)

    @property
    def next(self) -> tuple[str, Step] | None:
        """The first exercise, and its lesson, that is not passed as it stands."""
        for lesson, steps in self.lessons.items():
            for step in steps:
                if step.state != PASSED:
                    return lesson, step
        return None

    @property
    def passed(self) -> int:
        return sum(step.state == PASSED for steps in self.lessons.values() for step in steps)

    @property
    def total(self) -> int:
        return sum(map(len, self.lessons.values()))

    def __str__(self) -> str:
        lines = [f"{self.passed} of {self.total} exercises passed"]
        for lesson, steps in self.lessons.items():
            marks = "".join(_MARKS[step.state] for step in steps)
            done = sum(step.state == PASSED for step in steps)
            lines += ["", f"{lesson:<28} {marks}  {done} of {len(steps)}"]
            width = max((len(step.exercise) for step in steps), default=0)
            lines += [
                f"  {_MARKS[s.state]} {s.exercise:<{width}}  {s.state}"
                + (f" ({s.since})" if s.since else "")
                for s in steps
            ]
        return "\n".join([*lines, "", self._advice()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = []
        for lesson, steps in self.lessons.items():
            marks = " ".join(
                f'<span title="{html.escape(f"{s.exercise}: {s.state}")}">{_MARKS[s.state]}</span>'
                for s in steps
            )
            rows.append(f"<tr><td>{html.escape(lesson)}</td><td>{marks}</td></tr>")
        return f"<table>{''.join(rows)}</table><p>{html.escape(self._advice())}</p>"

    def _advice(self) -> str:
        if self.next is None:
            return "All passed."
        lesson, step = self.next
        return f'Next: {step.exercise} in {lesson}. If you are stuck: hint("{step.exercise}")'


def status(folder: Path, exercises: Mapping[str, Homed]) -> Status:
    """The status of the notebooks in `folder`; what they show as passed is noted there as well."""
    file = folder / progress.FILE
    known, new, found = progress.read(file), {}, {}
    for path in sorted(folder.glob("[0-9]*.ipynb")):
        try:
            notebook = nbformat.read(path, as_version=4)
        except Exception:  # it is damaged, or being saved: nbformat raises many kinds
            continue
        cells = {cell.get("id", ""): cell for cell in notebook.cells}
        identities = {f"answer-{name}"[:60]: name for name in _of(path.stem, exercises)}
        answers = {identities[i]: c.source for i, c in cells.items() if i in identities}
        for name, source in answers.items():
            if name not in known and _shows_passed(cells.get(f"check-{name}"[:60]), name):
                new[name] = progress.fingerprint(source, name)
        if answers:
            found[path.stem] = answers
    if new:
        progress.note(file, new)
        known = progress.read(file)
    return Status(
        {
            lesson: [_step(name, source, known.get(name)) for name, source in answers.items()]
            for lesson, answers in found.items()
        }
    )


def _of(lesson: str, exercises: Mapping[str, Homed]) -> list[str]:
    return [name for name, exercise in exercises.items() if exercise.notebook == lesson]


def _shows_passed(check: NotebookNode | None, exercise: str) -> bool:
    """Whether the stored output of a check is the line of one that passed."""
    outputs = check.get("outputs", ()) if check else ()
    return any(str(o.get("text", "")).startswith(f"{exercise}: passed.") for o in outputs)


def _step(exercise: str, source: str, known: dict[str, str] | None) -> Step:
    if known:
        same = progress.fingerprint(source, exercise) == known.get("answer")
        return Step(exercise, PASSED if same else CHANGED, known.get("passed", ""))
    return Step(exercise, OPEN if NOT_ATTEMPTED in source else BEGUN)


# ---------------------------------------------------------------------------------------------


def reset(root: Path, exercise: str, notebook: str) -> Path | None:
    """Empty the answer to one exercise in the learner's notebook, and keep a copy of it.

    Returns the copy; None if there was nothing to reset. What was passed stays noted.
    """
    path = root / "notebooks" / f"{notebook}.ipynb"
    fresh = {cell.id: cell for cell in untouched(root)[notebook].cells}
    content = nbformat.read(path, as_version=4)
    identity, check = f"answer-{exercise}"[:60], f"check-{exercise}"[:60]
    cells = {cell.get("id", ""): cell for cell in content.cells}
    if identity not in cells:
        raise ValueError(f"{path} has lost the cell of {exercise}: take a fresh copy of it")
    if cells[identity].source == fresh[identity].source:
        return None
    copy = _unused(root / "notebooks" / _KEPT, exercise)
    copy.parent.mkdir(exist_ok=True)
    copy.write_text(cells[identity].source + "\n", encoding="utf-8")
    cells[identity].source = fresh[identity].source
    for name in (identity, check):
        if name in cells:
            cells[name].outputs, cells[name].execution_count = [], None
    unfinished = path.with_suffix(".part")
    nbformat.write(content, unfinished)
    unfinished.replace(path)
    return copy


def _unused(folder: Path, exercise: str) -> Path:
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    names = [f"{exercise}_{now}{more}.py" for more in ("", *(f"_{n}" for n in range(2, 100)))]
    return next(folder / name for name in names if not (folder / name).exists())
