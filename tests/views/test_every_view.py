"""What holds for all views: a picture and words, nothing printed, nothing left open, no kernel."""

import base64

import nbformat
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib import pyplot
from nbconvert import HTMLExporter

from course_lib.classroom import outputs
from tests.views.examples import VIEWS, WIDGETS

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_a_picture_with_a_title_and_words(name, capfd):
    view = VIEWS[name]()
    formatter = DisplayFormatter()
    formatter.active_types = formatter.format_types
    bundle, _ = formatter.format(view)
    assert set(bundle) == {"text/plain", "image/png"}
    assert bundle["image/png"].startswith(b"\x89PNG")
    assert len(bundle["text/plain"]) > 20
    assert not bundle["text/plain"].startswith("<")
    titles = [ax.get_title() for ax in view.figure.axes]
    written = [text.get_text() for text in view.figure.texts]
    written += [text.get_text() for ax in view.figure.axes for text in ax.texts]
    assert any(titles) or any(len(text) > 8 for text in written)
    assert capfd.readouterr() == ("", "")
    assert pyplot.get_fignums() == []


@pytest.mark.parametrize("name", [n for n in VIEWS if "matrix" not in n and "ring" not in n])
def test_axes_with_numbers_are_labelled(name):
    view = VIEWS[name]()
    shared = view.figure.get_supxlabel() or view.figure.get_supylabel()
    for ax in view.figure.axes:
        if ax.axison and not shared:
            assert ax.get_xlabel() or ax.get_ylabel()


@pytest.mark.parametrize("name", WIDGETS)
def test_sliders_move_and_print_nothing(name, capfd):
    explorer = WIDGETS[name]()
    sliders, image = explorer.widget().children
    slider = sliders.children[0]
    first = slider.value
    slider.value = next(value for value in reversed(slider.options) if value != first)
    assert image.value != explorer.png()
    slider.value = first
    assert image.value == explorer.png()  # the same choice, the same picture
    assert capfd.readouterr() == ("", "")
    assert pyplot.get_fignums() == []


def page_of(data: dict) -> str:
    shown = nbformat.v4.new_output("display_data", data=data)
    cell = nbformat.v4.new_code_cell("show()", outputs=[shown], execution_count=1)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    page, _ = HTMLExporter().from_notebook_node(notebook)
    return page


@pytest.mark.parametrize("name", WIDGETS)
def test_a_page_without_a_kernel_shows_the_picture(name):
    bundle = WIDGETS[name]()._repr_mimebundle_()
    assert WIDGET in bundle
    data = bundle | {"image/png": base64.b64encode(bundle["image/png"]).decode()}
    picture = f"data:image/png;base64,{data['image/png']}"
    page = page_of(data)  # as a learner's notebook is stored, whose widget is gone
    assert picture in page
    assert bundle[WIDGET]["model_id"] not in page


def test_what_the_repository_stores_has_picture_and_words_and_no_widget():
    bundle = WIDGETS["sharding"]()._repr_mimebundle_()
    data = bundle | {"image/png": base64.b64encode(bundle["image/png"]).decode()}
    shown = nbformat.v4.new_output("display_data", data=data)
    cell = nbformat.v4.new_code_cell("show()", outputs=[shown], execution_count=1)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    outputs.normalise(notebook)
    assert set(cell.outputs[0].data) == {"text/plain", "image/png"}
    assert cell.outputs[0].data["text/plain"].startswith("MLP on 2 ranks")


@pytest.mark.parametrize("folder", ["notebooks", "solutions"])
def test_no_notebook_holds_the_state_of_widgets(root, folder):
    files = sorted((root / folder).glob("*.ipynb"))
    assert files
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "widgets" not in nbformat.reads(text, as_version=4).metadata, file.name
        assert WIDGET not in text, file.name
