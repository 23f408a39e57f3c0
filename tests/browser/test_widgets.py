"""A slider in a real JupyterLab: the picture follows it, and nothing else appears."""

import nbformat
import pytest
from playwright.sync_api import expect

from tests.browser.lab import find_browser, jupyterlab

pytestmark = pytest.mark.skipif(
    find_browser() is None,
    reason="needs a chromium or google-chrome on the PATH (Debian: apt-get install chromium)",
)
SHOW = """\
import time

from matplotlib.figure import Figure
from course_lib.views.explore import explore
from course_lib.views.view import View

DRAWN = []


def draw(ranks=1):
    DRAWN.append(ranks)
    time.sleep(0.1)  # a picture that takes its time
    figure = Figure(figsize=(3, 1))
    figure.text(0.1, 0.5, f"{ranks} ranks")
    return View(figure, f"{ranks} ranks")


explore(draw, ranks=range(1, 41))"""


@pytest.fixture
def folder(tmp_path):
    cells = [
        nbformat.v4.new_code_cell(source, id=name)
        for name, source in (("show", SHOW), ("count", "len(DRAWN), DRAWN[-1]"))
    ]
    python = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=python)
    nbformat.write(notebook, tmp_path / "sliders.ipynb")
    return tmp_path


def test_a_dragged_slider_moves_the_picture_and_skips_what_it_passed(folder):
    with jupyterlab(folder) as lab:
        notebook = lab.open("sliders.ipynb")
        notebook.run("show")
        cell = notebook.cell("show")
        picture = cell.locator("img").last
        expect(picture).to_be_visible()
        first = picture.get_attribute("src")
        grip = cell.locator(".noUi-handle").bounding_box()
        track = cell.locator(".noUi-base").bounding_box()
        x, y = grip["x"] + grip["width"] / 2, grip["y"] + grip["height"] / 2
        lab.page.mouse.move(x, y)
        lab.page.mouse.down()
        lab.page.mouse.move(track["x"] + track["width"] + 20, y, steps=60)
        lab.page.mouse.up()
        expect(cell.locator(".widget-readout")).to_have_text("40")
        expect(picture).not_to_have_attribute("src", first)
        count, last = map(int, notebook.run("count").strip("()").split(","))
        # The slider has passed 39 values; the kernel drew the last, and few on the way
        while last != 40:
            count, last = map(int, notebook.run("count").strip("()").split(","))
        assert count < 30
        assert cell.locator(".jp-OutputArea-output").count() == 1
        assert cell.locator(".jp-RenderedText").count() == 0
