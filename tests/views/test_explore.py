"""Sliders replace the picture; without them the first picture and its text remain."""

import asyncio
import gc
import pkgutil
import subprocess
import sys
import weakref

import pytest
from matplotlib.figure import Figure

import course_lib.views
from course_lib.views.explore import explore
from course_lib.views.view import View, said

WIDGET = "application/vnd.jupyter.widget-view+json"


def draw(ranks=4, alpha=1):
    figure = Figure(figsize=(1, 1))
    figure.text(0.1, 0.5, f"{ranks} {alpha}")
    return View(figure, f"{ranks} ranks, alpha {alpha}")


def test_a_moved_slider_replaces_the_image_by_that_of_the_new_arguments(capfd):
    widget = explore(draw, ranks=[2, 4, 8], alpha=[1, 10]).widget()
    sliders, image = widget.children
    assert image.value == draw().png()
    sliders.children[0].value = 8
    assert image.value == draw(ranks=8).png() != draw().png()
    sliders.children[1].value = 10
    assert image.value == draw(ranks=8, alpha=10).png()
    assert capfd.readouterr() == ("", "")


def test_sliders_that_do_not_fit_in_a_row_begin_another():
    sliders, _ = explore(draw, ranks=[2, 4], alpha=[1, 10]).widget().children
    assert sliders.layout.flex_flow == "row wrap"


def test_one_output_holds_sliders_picture_and_words():
    bundle = explore(draw, ranks=[2, 4])._repr_mimebundle_()
    assert bundle["text/plain"] == "4 ranks, alpha 1"
    assert bundle["image/png"] == draw().png()
    assert WIDGET in bundle


def test_without_ipywidgets_the_static_view_remains_and_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    bundle = explore(draw, ranks=[2, 4])._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/png"}
    assert bundle["text/plain"].splitlines() == [
        "4 ranks, alpha 1",
        "(no sliders: ipywidgets is not installed; pip install ipywidgets)",
    ]


def test_every_view_can_be_imported_without_ipywidgets():
    views = [m.name for m in pkgutil.iter_modules(course_lib.views.__path__)]
    assert "explore" in views
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
        slider, image = (box := explorer.widget().children)[0].children[0], box[1]
        drawn.clear()
        for value in range(1, 100):  # as a kernel's queue hands them over, one message at a time
            slider.value = value
            await asyncio.sleep(0)
        while not drawn or drawn[-1] != 99:
            await asyncio.sleep(0.005)
        return image.value

    last = asyncio.run(asyncio.wait_for(drag(), 30))
    assert last == draw(99).png()
    assert len(drawn) < 50  # most of the 99 were stale when their turn came
    assert drawn == sorted(drawn)


def test_pictures_that_were_replaced_leave_no_figure_behind():
    figures = []

    def drawn(ranks=0):
        view = draw(ranks)
        figures.append(weakref.ref(view.figure))
        return view

    explorer = explore(drawn, ranks=range(20))
    slider = explorer.widget().children[0].children[0]
    for value in range(1, 20):
        slider.value = value
    gc.collect()
    assert len(figures) == 20
    assert [figure() for figure in figures if figure()] == [explorer.figure]


def test_a_combination_that_cannot_be_drawn_is_said_in_the_picture():
    def picky(ranks=2):
        if ranks == 3:
            raise ValueError("3 ranks cannot be")
        return draw(ranks)

    sliders, image = explore(picky, ranks=[2, 3, 4]).widget().children
    sliders.children[0].value = 3
    assert image.value == said("3 ranks cannot be").png()
    sliders.children[0].value = 4
    assert image.value == draw(4).png()


def test_sliders_must_fit_the_function():
    with pytest.raises(ValueError, match="slider for 'rank'"):
        explore(draw, rank=[4])
    with pytest.raises(ValueError, match="ranks begins at 4, which is not among"):
        explore(draw, ranks=[1, 2])
