"""A learner's progress: read from what is there, never lost, and an answer reset is kept."""

import json
import sys

import nbformat
import pytest

from course_lib.checks import progress
from course_lib.classroom.handed_out import untouched
from course_lib.classroom.status import BEGUN, CHANGED, OPEN, PASSED, reset, status
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
    assert "quadruple" in shown._repr_html_()


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
    (root / "notebooks" / "02_broken.ipynb").write_text("{")
    assert states(root) == [OPEN, OPEN, OPEN]


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
