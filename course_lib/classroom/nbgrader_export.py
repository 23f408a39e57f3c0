"""The course as nbgrader takes it: a configuration, and a source notebook for each lesson.

In the sources, guesses are blank: nbgrader would put an exception in their place, on which the
cells below them would stumble. nbgrader runs a check in the same process as the answer, so it can
be fooled by whoever wants to; `grade` cannot be fooled that way.
"""

from pathlib import Path

import nbformat
from nbformat import NotebookNode

from .cell_ids import is_answer
from .strip_solutions import BEGIN, NOT_ATTEMPTED, with_blanks

_CONFIG = '''\
"""nbgrader's configuration of this course: nbgrader's documentation has the whole list."""

c = get_config()  # noqa: F821 - nbgrader provides it

c.CourseDirectory.course_id = "training_across_devices"
# The same hole as in the course's own notebooks: its checks know it.
c.ClearSolutions.code_stub = {"python": %r}
# Ranks are real processes. The longest cell takes some twenty seconds on two cores.
c.ExecutePreprocessor.timeout = 120
c.ExecutePreprocessor.startup_timeout = 120
'''


def export(solutions: Path, out: Path) -> list[str]:
    """Write `out`/nbgrader_config.py and `out`/source/LESSON/LESSON.ipynb; returns the lessons.

    Raises `ValueError` if `out` is not empty or there are no solutions.
    """
    files = sorted(solutions.glob("[0-9]*.ipynb"))
    if not files:
        raise ValueError(f"there are no solutions in {solutions}: export from the teacher's copy")
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} is not empty")
    out.mkdir(parents=True, exist_ok=True)
    (out / "nbgrader_config.py").write_text(_CONFIG % NOT_ATTEMPTED, encoding="utf-8")
    for file in files:
        folder = out / "source" / file.stem
        folder.mkdir(parents=True)
        nbformat.write(_source(nbformat.read(file, as_version=4)), folder / file.name)
    return [file.stem for file in files]


def _source(notebook: NotebookNode) -> NotebookNode:
    for cell in notebook.cells:
        for header in ("exercise", "check"):
            cell.metadata.pop(header, None)
        if cell.cell_type != "code":
            continue
        cell.outputs, cell.execution_count = [], None
        if BEGIN in cell.source and not is_answer(cell.id):
            cell.source = with_blanks(cell.source)
            cell.metadata.pop("nbgrader", None)
    notebook.metadata.pop("jupytext", None)
    return notebook
