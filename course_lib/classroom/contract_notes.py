"""The line under an exercise's statement that says what its check enforces, from its contract.

It is written into the notebooks and stands in no source, so that statement and check cannot differ.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from course_lib.checks.contract import GENERAL

from .lesson import Cell, Lesson

_ENFORCED = "> **Enforced:** "
_ALWAYS = "> **Always enforced:** "
# JupyterLab with jupytext may have saved them into the source of a solution that was opened.
_SAVED = re.compile(rf"\n+(?:{re.escape(_ENFORCED)}|{re.escape(_ALWAYS)}).*", re.DOTALL)


def with_contracts(lesson: Lesson, contracts: Mapping[str, str]) -> Lesson:
    """The lesson with each exercise's contract under its statement, the markdown above its answer.

    contracts: the text of each exercise's contract. The first one also says what all are held to.
    """
    cells = list(lesson.cells)
    for i, cell in enumerate(cells):
        above = _statement(cells, i)
        if cell.kind != "answer" or above is None:
            continue
        lines = [f"{_ENFORCED}{text}"] if (text := contracts.get(cell.name, "")) else []
        if cell.name == next(c.name for c in cells if c.kind == "answer"):
            lines.append(f"{_ALWAYS}{GENERAL}")
        plain = _SAVED.sub("", cells[above].source).rstrip()
        source = "\n\n".join([plain, *lines])
        cells[above] = replace(cells[above], source=source, student=source)
    return replace(lesson, cells=tuple(cells))


def _statement(cells: list[Cell], answer: int) -> int | None:
    """The index of the markdown cell above an answer, if there is one."""
    above = [i for i in range(answer) if cells[i].kind == "markdown"]
    return above[-1] if above else None
