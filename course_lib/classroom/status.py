"""How far a learner is: read from their notebooks and from what the checks noted beside them."""

import contextlib
import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from course_lib.checks import progress

from .cell_ids import answer_id, check_id
from .status_table import BEGUN, CHANGED, OPEN, PASSED, Remark, Status, Step
from .strip_solutions import NOT_ATTEMPTED

_KEPT = "kept"  # the folder for answers that were reset
_OF_SOLUTIONS = Remark(
    "These are the solutions, and nobody's progress is kept here. Beside a learner's notebooks\n"
    "this cell shows which exercises are passed, and what comes next."
)
_NOTHING_HERE = Remark(
    "This kernel runs in a folder without notebooks of the course, so it is not known what you have"
    " passed.\nKeep the notebooks together, under the names they came with. Checks work anyway."
)


class Homed(Protocol):
    """What is needed to know of an exercise: the notebook it is in."""

    @property
    def notebook(self) -> str: ...


def seen_from(folder: Path, exercises: Mapping[str, Homed]) -> Status | Remark:
    """What a kernel that runs in `folder` can say: the status of the notebooks there, or why not.

    Beside the lessons' sources it is always the same, so that an executed solution holds nothing of
    the machine that ran it.
    """
    lessons = {exercise.notebook for exercise in exercises.values()}
    if all((folder / f"{lesson}.py").exists() for lesson in lessons):
        return _OF_SOLUTIONS
    found = status(folder, exercises)
    return found if found.lessons else _NOTHING_HERE


def status(folder: Path, exercises: Mapping[str, Homed]) -> Status:
    """The status of the notebooks in `folder`; what they show as passed is noted there as well."""
    file = folder / progress.FILE
    known, new, found = progress.read(file), {}, {}
    for path in sorted(folder.glob("[0-9]*.ipynb")):
        cells = _cells(path)
        identities = {answer_id(name): name for name in _of(path.stem, exercises)}
        answers = {identities[i]: _text(c, "source") for i, c in cells.items() if i in identities}
        for name, source in answers.items():
            if name not in known and _shows_passed(cells.get(check_id(name)), name):
                new[name] = progress.fingerprint(source, name)
        if answers:
            found[path.stem] = answers
    known = known | {name: {"answer": answer} for name, answer in new.items()}
    if new:
        # In a folder that cannot be written to, the notebooks still show it the next time.
        with contextlib.suppress(OSError):
            progress.note(file, new)
            known = progress.read(file)
    return Status(
        {
            lesson: [_step(name, source, known.get(name)) for name, source in answers.items()]
            for lesson, answers in found.items()
        },
        tuple(sorted({exercise.notebook for exercise in exercises.values()} - set(found))),
    )


def _cells(path: Path) -> dict[str, dict[str, Any]]:
    """The cells of a notebook by id; none if it is damaged, or being saved.

    Read as plain JSON: nbformat needs a second to load, which a notebook's first cell has not.
    """
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        return {cell.get("id", ""): cell for cell in cells}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _text(piece: Mapping[str, Any], key: str) -> str:
    """A text of a notebook, which is stored as one or as a list of lines."""
    text = piece.get(key, "")
    return "".join(map(str, text))


def _of(lesson: str, exercises: Mapping[str, Homed]) -> list[str]:
    return [name for name, exercise in exercises.items() if exercise.notebook == lesson]


def _shows_passed(check: Mapping[str, Any] | None, exercise: str) -> bool:
    """Whether the stored output of a check is the line of one that passed."""
    outputs = check.get("outputs", ()) if check else ()
    line = f"{exercise}: passed."
    texts = ((_text(o, "text"), _text(o.get("data", {}), "text/plain")) for o in outputs)
    return any(text.startswith(line) for pair in texts for text in pair)


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
    import nbformat  # see `_cells`

    from .untouched_notebooks import untouched

    path = root / "notebooks" / f"{notebook}.ipynb"
    fresh = {cell.id: cell for cell in untouched(root)[notebook].cells}
    content = nbformat.read(path, as_version=4)
    identity, check = answer_id(exercise), check_id(exercise)
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
