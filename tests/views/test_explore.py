"""Sliders replace the picture; without them the first picture and its text remain."""

import sys

import pytest
from matplotlib.figure import Figure

from course_lib.views.explore import explore
from course_lib.views.view import View

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


def test_one_output_holds_sliders_picture_and_words():
    bundle = explore(draw, ranks=[2, 4])._repr_mimebundle_()
    assert bundle["text/plain"] == "4 ranks, alpha 1"
    assert bundle["image/png"] == draw().png()
    assert WIDGET in bundle


def test_without_ipywidgets_the_static_view_remains(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    bundle = explore(draw, ranks=[2, 4])._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/png"}


def test_sliders_must_fit_the_function():
    with pytest.raises(ValueError, match="slider for 'rank'"):
        explore(draw, rank=[4])
    with pytest.raises(ValueError, match="ranks begins at 4, which is not among"):
        explore(draw, ranks=[1, 2])
