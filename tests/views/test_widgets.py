"""Sliders replace the picture; without them the first picture and its text remain."""

import asyncio
import gc
import pkgutil
import subprocess
import sys
import weakref

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

import course_lib.views
from course_lib.views.svg_drawing import Picture
from course_lib.views.view import View, said
from course_lib.views.widgets import Control, explore
from tests.views.reading import Moved, shown_in

WIDGET = "application/vnd.jupyter.widget-view+json"


def draw(ranks=4, alpha=1):
    return View(Picture(f"{ranks} {alpha}"), f"{ranks} ranks, alpha {alpha}")


def test_a_moved_slider_replaces_the_picture_by_that_of_the_new_arguments(capfd):
    move = Moved(explore(draw, ranks=[2, 4, 8], alpha=[1, 10]))
    assert move.view.svg() == draw().svg()
    assert move(ranks=8).svg() == draw(ranks=8).svg() != draw().svg()
    assert move(alpha=10).svg() == draw(ranks=8, alpha=10).svg()
    assert capfd.readouterr() == ("", "")


def test_controls_that_do_not_fit_in_a_row_begin_another():
    box, _ = explore(draw, ranks=[2, 4], alpha=[1, 10]).controls()
    assert box.layout.flex_flow == "row wrap"


def test_numbers_are_on_a_slider_and_names_on_buttons_or_in_a_list():
    def named(short="ab", long="a long name of something", size=1):
        return draw(size)

    many = [f"a long name of {k}" for k in ("something", "another", "a third")]
    units = Control([1, 2], "size of it", "MB")
    box, _ = explore(named, short=["ab", "cd"], long=many, size=units).controls()
    kinds = [type(widget).__name__ for widget in box.children]
    assert kinds == ["ToggleButtons", "Dropdown", "SelectionSlider"]
    assert box.children[2].description == "size of it"
    assert [words for words, _ in box.children[2].options] == ["1 MB", "2 MB"]


def test_pictures_leave_room_for_the_tallest():
    move = Moved(explore(draw, height=500, ranks=[2, 4]))
    assert "height='500'" in move.view.svg()
    assert "height='500'" in move(ranks=2).svg()


def test_controls_and_picture_are_two_outputs():
    controls, picture = explore(draw, ranks=[2, 4], alpha=[1, 10]).bundles()
    assert WIDGET in controls
    assert controls["text/plain"] == (
        "Shown: ranks = 4; alpha = 1.\nWith a running kernel you can change this here."
    )
    assert picture["text/plain"] == "4 ranks, alpha 1"
    assert shown_in(picture) == draw().svg()


def test_without_a_kernel_only_what_matters_for_the_picture_is_said():
    units = Control([1, 2], "size of it", "MB", names={2: "all"})
    off = Control([1, 10], when=lambda now: now["ranks"] > 4)

    def drawn(ranks=4, alpha=1, size=2):
        return draw(ranks, alpha)

    controls, _ = explore(drawn, ranks=[2, 4, 8], alpha=off, size=units).bundles()
    assert controls["text/plain"].splitlines()[0] == "Shown: ranks = 4; size of it = all."


def test_in_a_notebook_the_second_output_follows_the_first():
    shell = InteractiveShell.instance()
    with capture_output() as captured:
        explore(draw, ranks=[2, 4])._ipython_display_()
    shell.clear_instance()
    controls, picture = captured.outputs
    assert WIDGET in controls.data
    assert "text/html" in picture.data


def test_without_ipywidgets_the_static_view_remains_and_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    controls, picture = explore(draw, ranks=[2, 4]).bundles()
    note = "(no controls: ipywidgets is not installed; pip install ipywidgets)"
    assert controls == {"text/plain": note}
    assert picture["text/plain"] == "4 ranks, alpha 1"


def test_every_view_can_be_imported_without_ipywidgets():
    views = [m.name for m in pkgutil.iter_modules(course_lib.views.__path__)]
    assert "widgets" in views
    code = "import sys; sys.modules['ipywidgets'] = None\n" + "\n".join(
        f"import course_lib.views.{name}" for name in views
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_a_slider_dragged_fast_leaves_no_queue_of_pictures():
    drawn = []

    def slow(ranks=0):
        drawn.append(ranks)
        return draw(ranks)

    async def drag():
        explorer = explore(slow, ranks=range(100))
        move = Moved(explorer)
        slider = move.widgets["ranks"]
        drawn.clear()
        for value in range(1, 100):  # as a kernel's queue hands them over, one message at a time
            slider.value = value
            await asyncio.sleep(0)
        while not drawn or drawn[-1] != 99:
            await asyncio.sleep(0.005)
        return move.view.svg()

    last = asyncio.run(asyncio.wait_for(drag(), 30))
    assert last == draw(99).svg()
    assert len(drawn) < 50  # most of the 99 were stale when their turn came
    assert drawn == sorted(drawn)


def test_pictures_that_were_replaced_leave_no_figure_behind():
    figures = []

    def drawn(ranks=0):
        view = draw(ranks)
        figures.append(weakref.ref(view.picture))
        return view

    explorer = explore(drawn, ranks=range(20))
    move = Moved(explorer)
    for value in range(1, 20):
        move(ranks=value)
    gc.collect()
    assert len(figures) == 20
    kept = [figure() for figure in figures if figure()]
    assert kept == [explorer.picture, move.view.picture]


def test_a_combination_that_cannot_be_drawn_is_said_in_the_picture():
    def picky(ranks=2):
        if ranks == 3:
            raise ValueError("3 ranks cannot be")
        return draw(ranks)

    move = Moved(explore(picky, ranks=[2, 3, 4]))
    assert move(ranks=3).svg() == said("3 ranks cannot be").svg()
    assert move(ranks=4).svg() == draw(4).svg()


def test_controls_must_fit_the_function():
    with pytest.raises(ValueError, match="control for 'rank'"):
        explore(draw, rank=[4])
    with pytest.raises(ValueError, match="ranks begins at 4, which is not among"):
        explore(draw, ranks=[1, 2])
