"""Draw the README's pictures: `make pictures`, or `python -m docs.pictures`.

A notebook in a real JupyterLab, once light and once dark: a deadlock of three ranks as a learner is
told of it, and a pipeline's schedules. Nothing is drawn by hand.
"""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course_lib.classroom.student_notebook import METADATA
from tests.browser.lab import Notebook, jupyterlab

FOLDER = Path(__file__).parent
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
WIDTH, HEIGHT, SCALE = 980, 1425, 2  # points, and pixels for each: sharp on sharp screens
NAME = "first_look.ipynb"
CELLS = (
    new_code_cell(
        """\
import torch
import torch.distributed as dist
from course_lib import run_ranks

def shift(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    arrived = torch.empty_like(tensor)
    dist.send(tensor, dst=(rank + 1) % n)
    dist.recv(arrived, src=(rank - 1) % n)
    return arrived

run_ranks(shift, 3, torch.ones(250_000))  # on three real processes""",
        id="deadlock",
    ),
    new_code_cell(
        """\
from course_lib.simulate import simulate
from course_lib.techniques.schedules import gpipe, one_f_one_b
from course_lib.views.gantt_chart import gantt_chart

gantt_chart({"GPipe": simulate(gpipe(4, 8)), "1F1B": simulate(one_f_one_b(4, 8))})""",
        id="schedules",
    ),
    new_markdown_cell(
        "**Explain.** 1F1B is not a step faster than GPipe. Then why does everybody use it?",
        id="explain",
    ),
)


def main() -> int:
    """Draw the picture in each theme."""
    for name, theme in THEMES.items():
        with tempfile.TemporaryDirectory(prefix="course-pictures-") as folder:
            nbformat.write(new_notebook(cells=list(CELLS), metadata=METADATA), Path(folder, NAME))
            with jupyterlab(Path(folder), theme, WIDTH, HEIGHT, scale=SCALE) as lab:
                notebook = lab.open(NAME)
                run_all(notebook)
                picture = FOLDER / f"jupyterlab-{name}.png"
                lab.page.screenshot(path=picture)
                print(picture)
    return 0


def run_all(notebook: Notebook) -> None:
    """Run the cells with code, and leave the first lines in sight."""
    for cell in CELLS:
        if cell.cell_type == "code":
            notebook.run(cell.id)
    notebook.save()
    notebook.page.keyboard.press("Escape")
    notebook.page.keyboard.press("ControlOrMeta+b")  # closes the list of files
    notebook.cell(CELLS[-1].id).click()
    notebook.cell(CELLS[0].id).scroll_into_view_if_needed()


if __name__ == "__main__":
    sys.exit(main())
