"""The two notebooks that a lesson becomes: for students with holes, and for teachers with answers.

Both carry nbgrader's cell metadata (schema version 3, nbgrader's docs, "Metadata format"), so
`nbgrader generate_assignment`, `autograde` and `formgrader` work on them. Cells have the same id in
both: what an exercise's cell is for, or else a digest of what the student sees, so that a rebuild
changes nothing that its author did not change.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from .cell_ids import cell_id
from .formulas import with_punctuation
from .lesson import Cell, Lesson

METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
# JupyterLab with jupytext keeps an opened solution and its source equal, headers included.
PAIRING = {
    "formats": "ipynb,py:percent",
    "cell_metadata_filter": "exercise,check,tags,-all",
    "notebook_metadata_filter": "kernelspec,-all",
}


def student_notebook(lesson: Lesson, points: Mapping[str, int]) -> NotebookNode:
    """The learner's notebook. `points` maps each exercise to what it is worth."""
    cells = [
        _cell(cell, cell.student, identity, points)
        for cell, identity in zip(lesson.cells, _identities(lesson), strict=True)
    ]
    return new_notebook(cells=cells, metadata=METADATA)


def solution_notebook(lesson: Lesson, points: Mapping[str, int]) -> NotebookNode:
    """The notebook with answers, not run yet."""
    cells = []
    for cell, identity in zip(lesson.cells, _identities(lesson), strict=True):
        made = _cell(cell, cell.source, identity, points)
        header = {"answer": "exercise", "check": "check"}.get(cell.kind)
        if header:
            made.metadata[header] = cell.name
        cells.append(made)
    return new_notebook(cells=cells, metadata=METADATA | {"jupytext": PAIRING})


def _cell(cell: Cell, source: str, identity: str, points: Mapping[str, int]) -> NotebookNode:
    make = new_code_cell if cell.is_code else new_markdown_cell
    source = source if cell.is_code else with_punctuation(source)
    metadata: dict = {"tags": list(cell.tags)} if cell.tags else {}
    if cell.kind in ("answer", "prediction", "check"):
        metadata["nbgrader"] = _nbgrader(cell, identity, points)
        metadata["deletable"] = False
    if cell.kind == "check":
        metadata["editable"] = False
    return make(source, id=identity, metadata=metadata)


def _nbgrader(cell: Cell, identity: str, points: Mapping[str, int]) -> dict:
    graded = cell.kind == "check"
    metadata = {
        "grade": graded,
        "grade_id": identity,
        "locked": graded,
        "schema_version": 3,
        "solution": not graded,
        "task": False,
    }
    if graded:
        metadata["points"] = points[cell.name]
    return metadata


def _identities(lesson: Lesson) -> list[str]:
    """An id for each cell, unique in the notebook; at most 64 letters, digits, - and _."""
    identities: list[str] = []
    seen: Counter[str] = Counter()
    for cell in lesson.cells:
        if cell.name:
            stem = cell_id(cell.kind, cell.name)
        else:
            stem = f"{cell.kind}-{hashlib.sha256(cell.student.encode()).hexdigest()[:8]}"
        seen[stem] += 1
        identities.append(stem if seen[stem] == 1 else f"{stem}-{seen[stem]}")
    return identities
