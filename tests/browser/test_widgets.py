"""Controls and pictures in a real JupyterLab: what is dragged, played, read aloud, and reopened."""

import nbformat
import pytest
from playwright.sync_api import expect

from course_lib.views.svg_drawing import WIDEST
from tests.browser.lab import Lab, find_browser

pytestmark = pytest.mark.skipif(
    find_browser() is None,
    reason="needs a chromium or google-chrome on the PATH (Debian: apt-get install chromium)",
)
SHOW = """\
import time

from course_lib.observe import Frame
from course_lib.views.svg_drawing import Picture
from course_lib.views.widgets import explore
from course_lib.views.source_lines import SourceLines
from course_lib.views.view import View

DRAWN = []


def draw(ranks=1):
    DRAWN.append(ranks)
    time.sleep(0.1)  # a picture that takes its time
    picture = Picture(f"{ranks} ranks")
    code = draw.__code__
    line = SourceLines(picture).place([Frame(code.co_filename, code.co_firstlineno + 2, "draw")])
    picture.box(100, 30, 50, 20, "#0072b2", "a box", key="first", line=line)
    picture.box(400, 30, 50, 20, "#0072b2", "another", key="second", later="two")
    with picture.group("marks"):
        picture.text(400, 66, "a mark")
    picture.player(50, 800, 20, 60, "50 ms" if ranks == 39 else "30 ms")
    picture.at_least(70)
    return View(picture, f"{ranks} ranks")


explore(draw, ranks=range(1, 41))"""


def write(lab: Lab, name: str, *cells: nbformat.NotebookNode) -> None:
    """A notebook into the folder of the lab."""
    python = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=list(cells), metadata=python), lab.folder / name)


def test_a_picture_follows_its_slider_is_played_and_outlives_its_kernel(lab):
    new = nbformat.v4.new_code_cell
    count = new("len(DRAWN), DRAWN[-1]", id="count")
    write(lab, "sliders.ipynb", new(SHOW, id="show"), count)
    notebook = lab.open("sliders.ipynb")
    notebook.run("show")
    cell = notebook.cell("show")
    picture = cell.locator("svg.live")
    expect(picture).to_be_visible()
    expect(picture).to_have_attribute("aria-label", "1 ranks\n1 ranks")
    assert 840 < picture.bounding_box()["width"] <= WIDEST  # as wide as the page has room for
    ink = picture.locator("text").first.evaluate("text => getComputedStyle(text).fill")
    assert min(map(int, ink.strip("rgba()").split(",")[:3])) > 200  # light on dark

    # Played: what is still to come is faint
    later = picture.locator("g.b").last
    cell.get_by_label("one step back").click()
    cell.get_by_label("one step back").click()
    assert float(later.evaluate("box => getComputedStyle(box).opacity")) < 0.5
    # Its slider lies on the axis: the thumb is where the hand stands
    moment = cell.get_by_role("slider", name="moment")
    frame, slider = picture.bounding_box(), moment.bounding_box()
    scale = frame["width"] / 840
    assert slider["x"] + 7 == pytest.approx(frame["x"] + 50 * scale, abs=1)
    assert slider["x"] + slider["width"] - 7 == pytest.approx(frame["x"] + 800 * scale, abs=1)
    assert slider["y"] + 8 == pytest.approx(frame["y"] + 60 * scale, abs=1)
    cell.get_by_label("play", exact=True).click()
    expect(cell.get_by_label("pause")).to_be_visible()

    # A click tells what a box is, shows its line, and leads to it
    cell.get_by_label("pause").click()
    cell.locator("g.b[data-line]").click()
    detail = cell.locator(".course-detail")
    expect(detail).to_contain_text("a box")
    expect(detail.locator("[aria-current]")).to_contain_text("time.sleep(0.1)")
    detail.get_by_role("button", name="show it in its cell").click()
    expect(cell.locator(".cm-line", has_text="time.sleep")).to_be_in_viewport()

    # By keyboard: the next box, enlarged, has room for its word; then all of it again
    picture.focus()
    lab.page.keyboard.press("ArrowRight")
    expect(detail).to_have_text("another")
    wide = picture.locator("g.b").last.locator("rect")
    before = float(wide.get_attribute("width"))
    lab.page.keyboard.press("+")
    assert float(wide.get_attribute("width")) == pytest.approx(2 * before, abs=0.1)
    expect(picture.get_by_text("two", exact=True)).to_be_visible()
    expect(picture.get_by_text("a mark", exact=True)).to_be_hidden()
    low, high = (float(moment.get_attribute(end)) for end in ("min", "max"))
    assert high - low == pytest.approx(750 / 2, abs=0.1)  # of what is enlarged
    lab.page.keyboard.press("0")
    assert float(wide.get_attribute("width")) == pytest.approx(before, abs=0.1)
    assert notebook.cell("show").locator("svg.live").count() == 1  # no shortcut of Lab was meant

    lab.page.keyboard.press("+")  # and enlarged again, before a slider redraws it all
    # Dragged: the slider passes 39 values; the kernel draws the last, and few on the way
    grip = cell.locator(".noUi-handle").bounding_box()
    track = cell.locator(".noUi-base").bounding_box()
    x, y = grip["x"] + grip["width"] / 2, grip["y"] + grip["height"] / 2
    lab.page.mouse.move(x, y)
    lab.page.mouse.down()
    lab.page.mouse.move(track["x"] + track["width"] + 20, y, steps=60)
    lab.page.mouse.up()
    expect(cell.locator(".widget-readout")).to_have_text("40")
    expect(picture).to_have_attribute("aria-label", "40 ranks\n40 ranks")
    handle = cell.get_by_role("slider", name="ranks")
    expect(handle).to_have_attribute("aria-valuetext", "40")
    assert float(wide.get_attribute("width")) == pytest.approx(2 * before, abs=0.1)
    count, last = map(int, notebook.run("count").strip("()").split(","))
    assert last == 40
    assert count < 30
    assert cell.locator(".jp-OutputArea-output").count() == 2  # and nothing was printed

    # A run of another length is shown whole, whatever was enlarged
    handle.press("ArrowLeft")
    expect(picture).to_have_attribute("aria-label", "39 ranks\n39 ranks")
    assert float(wide.get_attribute("width")) == pytest.approx(before, abs=0.1)
    handle.press("ArrowRight")
    expect(picture).to_have_attribute("aria-label", "40 ranks\n40 ranks")

    notebook.save()
    lab.end_kernels()
    cell = lab.open("sliders.ipynb").cell("show")
    expect(cell.locator("svg.live")).to_have_attribute("aria-label", "40 ranks\n40 ranks")
    gone = cell.locator(".jupyter-widgets")
    expect(gone).to_have_text("Error displaying widget: model not found")
    assert gone.evaluate("one => getComputedStyle(one).fontSize") == "0px"
    said = gone.evaluate("one => getComputedStyle(one, '::after').content")
    assert said == '"Run this cell to get its controls."'


def test_a_notebook_of_someone_else_shows_the_picture_without_running_anything(lab):
    data = {
        "text/plain": "words",
        "text/html": '<img class="course-view" alt="words" src="data:image/svg+xml,'
        "%3Csvg xmlns='http://www.w3.org/2000/svg' width='84' height='20'/%3E\">"
        "<script>document.body.dataset.ran = 'yes'</script>",
    }
    shown = nbformat.v4.new_output("display_data", data=data)
    cell = nbformat.v4.new_code_cell("show()", id="show", outputs=[shown], execution_count=1)
    write(lab, "theirs.ipynb", cell)
    cell = lab.open("theirs.ipynb").cell("show")
    image = cell.locator("img.course-view")
    expect(image).to_be_visible()
    assert image.evaluate("image => image.naturalWidth") == 84
    assert lab.page.evaluate("document.body.dataset.ran") is None
