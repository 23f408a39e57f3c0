"""The lessons that are shipped: up to date, without leaks, and legible without a kernel."""

from pathlib import Path, PurePosixPath

import nbformat
import pytest
from nbconvert import HTMLExporter

from course_lib.checks.registry import all_exercises
from course_lib.classroom import Course
from course_lib.classroom.answer_leaks import shown_as_code

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
