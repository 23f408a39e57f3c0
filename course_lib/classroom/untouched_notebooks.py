"""The notebooks as they are released, wherever this copy of the course has them.

A teacher has the solutions, and the student's notebook is the solution with holes. A learner's
bundle has untouched copies in a hidden folder beside the notebooks to work in.
"""

from pathlib import Path

import nbformat
from nbformat import NotebookNode

from .cell_ids import is_answer
from .strip_solutions import BEGIN, with_blanks, with_stubs

COPIES = ".release"


def untouched(root: Path) -> dict[str, NotebookNode]:
    """Lesson -> the student's notebook. Raises `ValueError` where there is neither source."""
    for folder, prepare in (
        (root / "solutions", _emptied),
        (root / "notebooks" / COPIES, lambda notebook: notebook),
    ):
        files = sorted(folder.glob("[0-9]*.ipynb"))
        if files:
            return {f.stem: prepare(nbformat.read(f, as_version=4)) for f in files}
    raise ValueError(f"{root} has neither solutions nor notebooks/{COPIES}: no untouched notebooks")


def course_answers(root: Path) -> dict[str, str]:
    """The id of an answer's cell -> the course's own; nothing where there are no solutions."""
    return {
        cell.id: cell.source
        for file in sorted((root / "solutions").glob("[0-9]*.ipynb"))
        for cell in nbformat.read(file, as_version=4).cells
        if is_answer(cell.id)
    }


def _emptied(solution: NotebookNode) -> NotebookNode:
    """The student's notebook of an executed solution, as `build` makes it from the source."""
    for cell in solution.cells:
        for header in ("exercise", "check"):
            cell.metadata.pop(header, None)
        if cell.cell_type != "code":
            continue
        cell.outputs, cell.execution_count = [], None
        if BEGIN in cell.source:
            fill = with_stubs if is_answer(cell.id) else with_blanks
            cell.source = fill(cell.source)
    solution.metadata.pop("jupytext", None)
    return solution
