"""A lesson as its author writes it: a Python file in jupytext's percent format.

What a cell is for stands in its header:

    # %% exercise="ring_all_reduce"      the function of that name, its answer between markers
    # %% check="ring_all_reduce"         calls check(ring_all_reduce)
    # %%                                 with markers: a prediction, assignments to names
    # %%                                 without: code of the lesson
    # %% tags=["raises-exception"]       tags that nbval and nbclient know
"""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

import jupytext

from .strip_solutions import answers, with_blanks, with_stubs

TAGS = frozenset({"nbval-ignore-output", "raises-exception", "nbval-skip"})


class LessonError(ValueError):
    """The source of a lesson is not as it must be; the message names file, cell and repair."""


@dataclass(frozen=True)
class Cell:
    """One cell. `kind` is "markdown", "code", "answer", "check" or "prediction".

    source: with the answer; student: what the learner gets; name: of the exercise ("" if none).
    """

    kind: str
    source: str
    student: str
    name: str = ""
    tags: tuple[str, ...] = ()

    @property
    def is_code(self) -> bool:
        return self.kind != "markdown"


@dataclass(frozen=True)
class Lesson:
    """`name` is the file's stem, such as "02_ring_all_reduce"."""

    name: str
    cells: tuple[Cell, ...] = field(repr=False)

    def named(self, kind: str) -> list[str]:
        """The exercises that have a cell of this kind, in order, as often as they have one."""
        return [cell.name for cell in self.cells if cell.kind == kind]


def read_lesson(path: Path) -> Lesson:
    """Read and check a source. Raises `LessonError` for the first cell that cannot be used."""
    notebook = jupytext.reads(path.read_text(encoding="utf-8"), fmt="py:percent")
    cells = []
    for number, raw in enumerate(notebook.cells, start=1):
        try:
            cells.append(_cell(raw))
        except ValueError as error:
            first = (raw.source.strip().splitlines() or ["(empty)"])[0]
            raise LessonError(f"{path.name}, cell {number} ({first}): {error}") from None
    return Lesson(path.stem, tuple(cells))


def _cell(raw) -> Cell:
    header = {k: v for k, v in raw.metadata.items() if k != "lines_to_next_cell"}
    exercise, check = header.pop("exercise", ""), header.pop("check", "")
    tags = tuple(header.pop("tags", ()))
    if header:
        raise ValueError(f"the header knows exercise, check and tags, and not {', '.join(header)}")
    if unknown := set(tags) - TAGS:
        raise ValueError(f"unknown tag {', '.join(sorted(unknown))}: one of {', '.join(TAGS)}")
    source, found = raw.source, answers(raw.source)
    if raw.cell_type == "markdown":
        if found or exercise or check:
            raise ValueError("only a code cell can hold an answer or a check")
        return Cell("markdown", source, source)
    if raw.cell_type != "code":
        raise ValueError(f"a lesson has markdown and code cells, and no {raw.cell_type} cells")
    if exercise:
        if not found:
            raise ValueError(f"the answer to {exercise} needs markers around it")
        _require_function(source, exercise)
        return Cell("answer", source, with_stubs(source), exercise, tags)
    if check:
        if not re.search(rf"\bcheck\({re.escape(check)}\)", source):
            raise ValueError(f"the check cell of {check} must call check({check})")
        if tags:
            raise ValueError("a check is compared and may not fail: no tags")
        return Cell("check", source, source, check)
    if found:
        return Cell("prediction", source, with_blanks(source), "", tags)
    return Cell("code", source, source, "", tags)


def _require_function(source: str, name: str) -> None:
    defined = [n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    if name not in defined:
        raise ValueError(f"the cell of exercise {name} must define a function of that name")
