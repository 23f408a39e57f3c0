"""Learners' notebooks, run as they are before anything has been answered."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.sampling import EVERY

ROOT = Path(__file__).resolve().parents[2]
LESSONS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("name", LESSONS[::EVERY])
def test_an_untouched_notebook_says_what_is_not_attempted_yet(name):
    """Run All, going on after errors: every check says one line, and nothing fails before it.

    Behind the first check, cells that start processes are left out: they show what an answer does,
    which is not there, and run with it in the solutions.
    """
    notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    begun = False
    for cell in list(notebook.cells):
        begun |= cell.id.startswith("check-")
        shows = not cell.id.startswith(("check-", "answer-")) and cell.cell_type == "code"
        if begun and shows and ("run_ranks(" in cell.source or "subprocess" in cell.source):
            notebook.cells.remove(cell)
    NotebookClient(
        notebook,
        timeout=60,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": str(ROOT / "notebooks")}},
    ).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    first_check = next(n for n, cell in enumerate(code) if cell.id.startswith("check-"))
    for cell in code[:first_check]:
        if "raises-exception" not in cell.metadata.get("tags", ()):
            assert [o.evalue for o in cell.outputs if o.output_type == "error"] == []
    for cell in code:
        if cell.id.startswith("check-"):
            exercise = cell.id.removeprefix("check-")
            (output,) = cell.outputs
            assert output.evalue == f"{exercise}: not attempted yet"
            assert len(output.traceback) == 1
