"""The lines under an exercise's statement: what may come, what its check enforces and allows.

It is written into the notebooks and stands in no source, so that statement and check cannot differ.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from course_lib.checks.contract import GENERAL

from .lesson import Cell, Lesson

_ARGUMENTS = "> **Arguments:** "
_ENFORCED = "> **Enforced:** "
_ALLOWED = "> **Allowed:** "
_ALWAYS = "> **Always enforced:** "
# JupyterLab with jupytext may have saved them into the source of a solution that was opened.
_LEADS = "|".join(map(re.escape, (_ARGUMENTS, _ENFORCED, _ALLOWED, _ALWAYS)))
_SAVED = re.compile(rf"\n+(?:{_LEADS}).*", re.DOTALL)


class Worded(Protocol):
    """What may come, what is promised and what is free, in words."""

    @property
    def arguments(self) -> str: ...

    @property
    def text(self) -> str: ...

    @property
    def freedom(self) -> str: ...


def with_contracts(lesson: Lesson, contracts: Mapping[str, Worded]) -> Lesson:
    """The lesson with each exercise's contract under its statement, the markdown above its answer.

    contracts: by exercise. The first statement also says what all exercises are held to.
    """
    cells = list(lesson.cells)
    for i, cell in enumerate(cells):
        above = _statement(cells, i)
        if cell.kind != "answer" or above is None:
            continue
        lines = _lines(contracts[cell.name]) if cell.name in contracts else []
        if cell.name == next(c.name for c in cells if c.kind == "answer"):
            lines.append(f"{_ALWAYS}{GENERAL}")
        plain = _SAVED.sub("", cells[above].source).rstrip()
        source = "\n\n".join(filter(None, [plain, "\n>\n".join(lines)]))
        cells[above] = replace(cells[above], source=source, student=source)
    return replace(lesson, cells=tuple(cells))


def _lines(contract: Worded) -> list[str]:
    said = (
        (_ARGUMENTS, contract.arguments),
        (_ENFORCED, contract.text),
        (_ALLOWED, contract.freedom),
    )
    return [f"{lead}{text}" for lead, text in said if text]


def _statement(cells: list[Cell], answer: int) -> int | None:
    """The index of the markdown cell above an answer, if there is one."""
    above = [i for i in range(answer) if cells[i].kind == "markdown"]
    return above[-1] if above else None
