"""The lessons that are shipped: up to date, without leaks, and kind to whoever opens them."""

from pathlib import Path, PurePosixPath

import nbformat
import pytest
from nbclient import NotebookClient
from nbconvert import HTMLExporter

from course_lib.checks.registry import all_exercises
from course_lib.classroom import Course
from course_lib.classroom.answer_leaks import shown_as_code
from tests.sampling import EVERY

ROOT = Path(__file__).resolve().parents[2]
COURSE = Course(ROOT, all_exercises())


def test_notebooks_are_what_their_sources_make():
    assert [str(problem) for problem in COURSE.problems()] == []


def test_every_exercise_has_three_different_hints():
    for exercise in COURSE.exercises.values():
        assert len({hint.strip() for hint in exercise.hints} - {""}) == 3, exercise.name


def test_nothing_but_techniques_shows_an_answer(root):
    """Techniques are the subject itself; the checks, above all, must not hold the answers."""
    library = root / "course_lib"
    shown = []
    for file in sorted(library.rglob("*.py")):
        path = PurePosixPath(file.relative_to(library))
        if path.parts[0] != "techniques":
            names = shown_as_code(file.read_text(encoding="utf-8"), COURSE.answer_pieces)
            shown += [f"{path} shows the answer of {name}" for name in names]
    assert shown == []


@pytest.mark.parametrize("name", COURSE.lessons)
def test_a_solution_can_be_read_without_a_kernel(name):
    """As on GitHub: it becomes a page, needs no widget, and each picture has its words."""
    notebook = nbformat.read(ROOT / "solutions" / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    page, _ = HTMLExporter().from_notebook_node(notebook)
    assert notebook.cells[0].source.split("\n")[0].lstrip("# ") in page
    assert "widget-view" not in nbformat.writes(notebook)
    for cell in notebook.cells:
        outputs = cell.get("outputs", ())
        # What is shown beside an error has its words in that.
        told = any(output.output_type == "error" for output in outputs)
        for output in outputs:
            data = output.get("data", {})
            if {"image/png", "image/svg+xml", "text/html"} & set(data):
                words = data.get("text/plain", "")
                assert words or told, cell.id
                assert not words.startswith("<"), words


@pytest.mark.parametrize("name", list(COURSE.lessons)[::EVERY])
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
