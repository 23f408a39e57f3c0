"""A learner's progress: read from what is there, never lost, and an answer reset is kept."""

import json
import subprocess
import sys
from types import SimpleNamespace

import nbformat
import pytest

from course_lib.checks import progress
from course_lib.classroom.status import BEGUN, CHANGED, OPEN, PASSED, reset, seen_from, status
from course_lib.classroom.untouched_notebooks import untouched
from tests.classroom import tiny


@pytest.fixture
def root(tmp_path):
    tiny.write_course(tmp_path)
    return tmp_path


def states(root) -> list[str]:
    (steps,) = status(root / "notebooks", tiny.EXERCISES).lessons.values()
    return [step.state for step in steps]


def save(root, outputs=(), **answers):
    """As Jupyter would save the notebook, with some checks' outputs."""
    notebook = tiny.answered(root, **answers)
    for cell in notebook.cells:
        name = cell.id.removeprefix("check-")
        if cell.cell_type == "code":
            cell.outputs = []
        if name in outputs:
            text = f"{name}: passed. 2 cases; it does.\n"
            cell.outputs = [nbformat.v4.new_output("stream", text=text)]
    nbformat.write(notebook, root / "notebooks" / "01_tiny.ipynb")


def test_the_untouched_notebooks_are_the_solutions_with_holes(root):
    (notebook,) = untouched(root).values()
    shipped = nbformat.read(root / "notebooks" / "01_tiny.ipynb", as_version=4)
    assert notebook == shipped


def test_from_untouched_to_passed_and_on(root):
    assert states(root) == [OPEN, OPEN, OPEN]
    save(root, double=tiny.ANSWERS["double"])
    assert states(root) == [BEGUN, OPEN, OPEN]
    save(root, outputs=["double"], double=tiny.ANSWERS["double"])
    assert states(root) == [PASSED, OPEN, OPEN]
    save(root, double=tiny.ANSWERS["double"] + "  # the outputs are cleared, and this is new")
    assert states(root) == [PASSED, OPEN, OPEN]
    save(root, double="def double(x):\n    return 0")
    assert states(root) == [CHANGED, OPEN, OPEN]


def test_what_comes_next_is_said(root):
    save(root, outputs=["double", "exchange"], **tiny.ANSWERS)
    shown = status(root / "notebooks", tiny.EXERCISES)
    assert (shown.passed, shown.total) == (2, 3)
    assert 'Next: quadruple in 01_tiny. If you are stuck: hint("quadruple")' in str(shown)
    assert "<b>2 of 3 exercises passed</b><br>Next: quadruple in 01_tiny" in shown._repr_html_()
    assert '<a href="01_tiny.ipynb">' in shown._repr_html_()
    (fresh,) = untouched(root).values()
    nbformat.write(fresh, root / "notebooks" / "01_tiny.ipynb")
    (root / "notebooks" / progress.FILE).unlink()
    assert "Next: double in 01_tiny" in str(status(root / "notebooks", tiny.EXERCISES))


def test_no_place_of_the_machine_is_shown(root):
    for shown in (seen_from(root / name, tiny.EXERCISES) for name in ("notebooks", "solutions")):
        assert str(root) not in str(shown)
    assert str(root) not in seen_from(root / "notebooks", tiny.EXERCISES)._repr_html_()


def test_among_the_solutions_it_says_the_same_whatever_they_show_and_notes_nothing(root):
    before = str(seen_from(root / "solutions", tiny.EXERCISES))
    assert before.startswith("These are the solutions")
    path = root / "solutions" / "01_tiny.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.id == "check-double":
            cell.outputs = [nbformat.v4.new_output("stream", text="double: passed. 2 cases.\n")]
    nbformat.write(notebook, path)
    assert str(seen_from(root / "solutions", tiny.EXERCISES)) == before
    path.unlink()  # as when they are built for the first time
    assert str(seen_from(root / "solutions", tiny.EXERCISES)) == before
    assert not (root / "solutions" / progress.FILE).exists()


def test_a_notebook_on_its_own_and_none_at_all(root, tmp_path):
    exercises = tiny.EXERCISES | {"ring": SimpleNamespace(notebook="02_ring")}
    alone = seen_from(root / "notebooks", exercises)
    assert list(alone.lessons) == ["01_tiny"]
    assert str(alone).endswith("Not found in this folder, or not readable: 02_ring")
    (root / "notebooks" / "01_tiny.ipynb").rename(root / "notebooks" / "1 (my copy).ipynb")
    assert "a folder without notebooks of the course" in str(
        seen_from(root / "notebooks", exercises)
    )


def test_a_folder_that_cannot_be_written_to_shows_what_its_notebooks_show(root, monkeypatch):
    def refuse(*_):
        raise PermissionError("read-only")

    monkeypatch.setattr(progress, "note", refuse)
    save(root, outputs=["double"], double=tiny.ANSWERS["double"])
    assert states(root) == [PASSED, OPEN, OPEN]


def test_a_notebooks_first_cell_waits_for_no_library_of_notebooks():
    """Only to import nbformat takes a second."""
    code = (
        "import sys; from course_lib.classroom import status_view; status_view();"
        "sys.exit('nbformat' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=100, check=False).returncode == 0


def test_a_reset_keeps_a_copy_each_time(root):
    save(root, outputs=["double"], **tiny.ANSWERS)
    assert states(root)[0] == PASSED
    copies = [reset(root, "double", "01_tiny")]
    assert states(root) == [CHANGED, BEGUN, BEGUN]
    assert reset(root, "double", "01_tiny") is None
    save(root, **tiny.ANSWERS)
    copies.append(reset(root, "double", "01_tiny"))
    assert copies[0] != copies[1]
    assert {copy.read_text() for copy in copies} == {tiny.ANSWERS["double"] + "\n"}
    notebook = nbformat.read(root / "notebooks" / "01_tiny.ipynb", as_version=4)
    assert [c.outputs for c in notebook.cells if c.id == "check-double"] == [[]]


def test_a_damaged_notebook_or_progress_file_is_no_reason_to_fail(root):
    (root / "notebooks" / progress.FILE).write_text("{")
    assert states(root) == [OPEN, OPEN, OPEN]
    for text in ("{", "[]", '{"cells": 3}', '{"cells": [3]}'):
        (root / "notebooks" / "01_tiny.ipynb").write_text(text)
        assert "a folder without" in str(seen_from(root / "notebooks", tiny.EXERCISES))


def test_a_check_that_passes_is_noted_beside_the_learners_notebook(root, monkeypatch):
    def double(x):
        return x + x

    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    for folder in ("solutions", "notebooks"):
        monkeypatch.chdir(root / folder)
        progress.record("01_tiny", "double", double)
    assert not (root / "solutions" / progress.FILE).exists()
    (noted,) = json.loads((root / "notebooks" / progress.FILE).read_text())
    assert noted == "double"
