"""What the README's pictures show is what a kernel answers today."""

import struct

import nbformat
import pytest
from nbclient import NotebookClient

from course_lib.classroom.kernels import use_ipc
from docs import pictures


@pytest.fixture(scope="module")
def outputs(tmp_path_factory) -> dict[str, list]:
    """Id of a cell with code -> its outputs, from a fresh kernel."""
    use_ipc()
    notebook = nbformat.v4.new_notebook(cells=list(pictures.CELLS))
    folder = tmp_path_factory.mktemp("first_look")
    client = NotebookClient(
        notebook,
        timeout=120,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    return {cell.id: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}


def test_the_deadlock_is_explained(outputs):
    picture, error = outputs["deadlock"]
    assert 'class="course-view"' in picture["data"]["text/html"]
    said = "\n".join(error["traceback"])
    for rank, receiver in ((0, 1), (1, 2), (2, 0)):
        assert f"rank {rank}  waits to send 250000 float32 to rank {receiver}   cell [1]" in said
    assert "all send first" in said
    assert "Try:" in said


def test_the_schedules_are_drawn(outputs):
    (drawn,) = outputs["schedules"]
    assert 'class="course-view"' in drawn["data"]["text/html"]
    assert "1F1B: 33 " in drawn["data"]["text/plain"]


@pytest.mark.parametrize("theme", pictures.THEMES)
def test_the_pictures_have_the_size_of_the_window(root, theme):
    data = (root / "docs" / f"jupyterlab-{theme}.png").read_bytes()
    sides = (pictures.SCALE * side for side in (pictures.WIDTH, pictures.HEIGHT))
    assert struct.unpack(">II", data[16:24]) == tuple(sides)
