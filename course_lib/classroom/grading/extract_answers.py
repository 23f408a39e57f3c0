"""Take the answers out of whatever became of a notebook: by exercise, trusting nothing else in it.

An answer is looked for by its cell's id, then by nbgrader's id, then by the name of the function.
Whatever is odd gives a note that a person can act upon, and never an exception.
"""

import codecs
import contextlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from course_lib.checks.sandbox.answer_program import without_magics
from course_lib.checks.sandbox.slicing import names_of, statements
from course_lib.classroom.cell_ids import answer_id, check_id

from .assignment import Addition, Assignment

_LONGEST = 200_000  # characters of an answer


class Unreadable(ValueError):
    """The file is no notebook that could hold answers; the message says why."""


@dataclass(frozen=True)
class Cell:
    """A cell of a submission: its type, source, and the ids it claims to have."""

    kind: str
    source: str
    identities: tuple[str, ...] = ()


@dataclass
class Answers:
    """What a submission answers: exercise -> source; what else it defines; notes on oddities."""

    sources: dict[str, str] = field(default_factory=dict)
    additions: list[Addition] = field(default_factory=list)
    notes: dict[str, list[str]] = field(default_factory=dict)  # by exercise; "" of the notebook

    def note(self, exercise: str, sentence: str) -> None:
        self.notes.setdefault(exercise, []).append(sentence)


def read_cells(content: bytes) -> list[Cell]:
    """The cells of a notebook of any format. Raises `Unreadable`."""
    if not content.strip():
        raise Unreadable("the file is empty")
    try:
        notebook = json.loads(_decoded(content))
    except RecursionError:
        raise Unreadable("it is no notebook: it is nested too deeply") from None
    except ValueError as problem:
        if content.lstrip()[:1] == b"{":
            raise Unreadable(f"it is cut short or damaged: {problem}") from None
        raise Unreadable("it is no notebook: its content is not JSON") from None
    if not isinstance(notebook, dict):
        raise Unreadable("it is no notebook: JSON without cells")
    raw = notebook.get("cells")
    if raw is None and isinstance(notebook.get("worksheets"), list):  # formats 2 and 3
        raw = [c for sheet in notebook["worksheets"] for c in _get(sheet, "cells", list, [])]
    if not isinstance(raw, list):
        raise Unreadable("it is no notebook: JSON without cells")
    return [_cell(cell) for cell in raw if isinstance(cell, dict)]


# The longer mark of UTF-32 begins like that of UTF-16.
_MARKS = (
    *((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32")),
    *((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")),
)


def _decoded(content: bytes) -> str:
    """The text, by its byte order mark, or by where its zeros are, or as UTF-8, or as latin-1."""
    marked = [encoding for mark, encoding in _MARKS if content.startswith(mark)]
    if not marked and content[:4].count(0) == 2:
        marked = ["utf-16-be" if content[0] == 0 else "utf-16-le"]
    for encoding in (*marked, "utf-8-sig"):
        with contextlib.suppress(UnicodeDecodeError):
            return content.decode(encoding)
    return content.decode("latin-1")


_SEPARATOR = re.compile(r"^# (?:%%.*|In ?\[[ \d]*\]:.*|COMMAND -+)$", re.MULTILINE)


def read_script(content: bytes) -> list[Cell]:
    """The cells of a notebook that was saved as Python code, in percent format or by nbconvert.

    Without a mark between cells, every statement is one.
    """
    text = _clean(_decoded(content))
    parts = _SEPARATOR.split(text)
    if len(parts) == 1:
        with contextlib.suppress(SyntaxError, ValueError, RecursionError, MemoryError):
            parts = statements(without_magics(text))
    return [Cell("code", part.strip("\n")) for part in parts if part.strip()]


def is_notebook(content: bytes) -> bool:
    """Whether a file of another name is a notebook."""
    with contextlib.suppress(Unreadable):
        return bool(read_cells(content))
    return False


def _clean(source: str) -> str:
    """Line ends of one kind, no byte order mark inside, no halves of characters."""
    source = source.replace("\r\n", "\n").replace("\r", "\n").replace("\ufeff", "")
    return source.encode("utf-8", "replace").decode("utf-8")


def _cell(raw: dict[str, Any]) -> Cell:
    source = raw.get("source", raw.get("input", ""))
    if isinstance(source, list):
        source = "".join(line for line in source if isinstance(line, str))
    metadata = _get(raw, "metadata", dict, {})
    nbgrader = _get(metadata, "nbgrader", dict, {})
    claimed = (raw.get("id"), metadata.get("id"), nbgrader.get("grade_id"))
    return Cell(
        str(raw.get("cell_type", "code")),
        _clean(source) if isinstance(source, str) else "",
        tuple(name for name in claimed if isinstance(name, str)),
    )


def _get(mapping: Any, key: str, kind: type, default: Any) -> Any:
    found = mapping.get(key) if isinstance(mapping, dict) else None
    return found if isinstance(found, kind) else default


# ---------------------------------------------------------------------------------------------


def take_answers(cells: Sequence[Cell], assignment: Assignment) -> Answers:
    """The answers of a submission to an assignment."""
    answers = Answers()
    given = set(map(str.strip, assignment.cells))
    names = {exercise: _defining(cells, exercise, given) for exercise in assignment.answers}
    if not cells:
        answers.note("", "the notebook has no cells")
    elif not any(cell.identities for cell in cells):
        answers.note("", "its cells have lost their ids: answers are found by function names")
    taken: set[int] = set()
    for exercise in assignment.answers:
        place = _choose(cells, exercise, names[exercise], assignment, answers)
        if place is None:
            continue
        taken.add(place)
        source = cells[place].source
        if len(source) > _LONGEST:
            answers.note(exercise, f"the answer has more than {_LONGEST} characters: not read")
            continue
        answers.sources[exercise] = source
    _note_order(cells, assignment, answers)
    answers.additions = _additions(cells, assignment, taken)
    return answers


def _defining(cells: Sequence[Cell], name: str, given: set[str]) -> list[int]:
    """The places of cells that define a function of this name, and are not the notebook's own."""
    return [
        place
        for place, cell in enumerate(cells)
        if name in cell.source and cell.source.strip() not in given and _defines(cell.source, name)
    ]


def _defines(source: str, name: str) -> bool:
    try:
        return name in names_of(without_magics(source)).bound
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return re.search(rf"^def {re.escape(name)}\b", source, re.MULTILINE) is not None


def _choose(
    cells: Sequence[Cell],
    exercise: str,
    defining: list[int],
    assignment: Assignment,
    answers: Answers,
) -> int | None:
    """The place of the answer, with notes on why that one."""
    identity = answer_id(exercise)
    named = [place for place, cell in enumerate(cells) if identity in cell.identities]
    worked = [p for p in named if not assignment.is_untouched(exercise, cells[p].source)]
    if len(named) > 1:
        answers.note(exercise, f"its cell is there {len(named)} times: the last one counts")
    if named:
        place = (worked or named)[-1]
        if cells[place].kind != "code":
            answers.note(exercise, f"its cell has become {cells[place].kind}: read as code")
        elsewhere = [p for p in defining if p not in named]
        usable = place in worked and (place in defining or not elsewhere)
        if usable or not elsewhere:
            return place
        answers.note(exercise, "the answer is in another cell than its own, which counts")
        return elsewhere[-1]
    if defining:
        if any(cell.identities for cell in cells):
            answers.note(exercise, "its cell is gone: found by the name of the function")
        if len(defining) > 1:
            answers.note(exercise, f"it is defined {len(defining)} times: the last one counts")
        return defining[-1]
    stub = assignment.stub(exercise).strip()
    if any(cell.source.strip() == stub for cell in cells):
        return next(p for p, cell in enumerate(cells) if cell.source.strip() == stub)
    answers.note(exercise, "its cell is missing")
    return None


def _note_order(cells: Sequence[Cell], assignment: Assignment, answers: Answers) -> None:
    """What was done to the notebook's own cells, which do not count."""
    order = [
        assignment.identities.index(name)
        for cell in cells
        for name in cell.identities[:1]
        if name in assignment.identities
    ]
    if order != sorted(order):
        answers.note("", "cells are in another order; the notebook's own order counts")
    present = {name for cell in cells for name in cell.identities}
    own = dict(zip(assignment.identities, assignment.cells, strict=True))
    if not present & set(own):
        return
    for exercise in assignment.answers:
        check = check_id(exercise)
        if check in own and check not in present:
            answers.note("", f"the check of {exercise} is missing; it is graded all the same")
        for cell in cells:
            if check in cell.identities and cell.source.strip() != own.get(check, "").strip():
                answers.note("", f"the check of {exercise} was changed; the change does not count")


def _additions(cells: Sequence[Cell], assignment: Assignment, taken: set[int]) -> list[Addition]:
    """Code cells that the notebook does not have like this, each with its own cell above it."""
    places: Mapping[str, int] = {name: i for i, name in enumerate(assignment.identities)}
    given = set(map(str.strip, assignment.cells))
    above, found = -1, []
    for place, cell in enumerate(cells):
        known = [places[name] for name in cell.identities if name in places]
        above = known[0] if known else above
        if cell.kind == "code" and place not in taken and cell.source.strip() not in given:
            found.append(Addition(above, cell.source))
    return found
