"""What holds for all views: a picture and words, nothing printed, no kernel, no request."""

import re

import nbformat
import pytest
from nbconvert import HTMLExporter

from course_lib.classroom import stored_outputs
from course_lib.views.svg_drawing import WIDTH
from tests.views.examples import VIEWS, WIDGETS
from tests.views.reading import Moved, places, shown_in, tree

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_a_picture_with_a_title_and_words(name, capfd):
    view = VIEWS[name]()
    bundle = view._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert len(bundle["text/plain"]) > 20
    assert not bundle["text/plain"].startswith("<")
    assert shown_in(bundle) == view.svg()
    assert len(view.picture.title) > 4
    alternative = re.search(r'<img [^>]*?alt="(.*?)"', bundle["text/html"], re.S).group(1)
    assert len(alternative) > 20
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", VIEWS)
def test_the_same_view_has_the_same_bytes(name):
    assert VIEWS[name]().html() == VIEWS[name]().html()


@pytest.mark.parametrize("name", VIEWS)
def test_all_pictures_have_one_width_and_nothing_stands_outside(name):
    view = VIEWS[name]()
    root = tree(view)
    assert root.get("width") == str(WIDTH)
    for spots in places(view).values():
        for x, y in spots:
            assert 0 <= x <= WIDTH
            assert 0 <= y <= float(root.get("height"))


@pytest.mark.parametrize("name", VIEWS)
def test_nothing_is_fetched_from_anywhere(name):
    html = VIEWS[name]().html().replace("http://www.w3.org/", "")
    assert "http" not in html
    assert "fetch(" not in html
    assert "import(" not in html


@pytest.mark.parametrize("name", WIDGETS)
def test_controls_move_the_picture_and_print_nothing(name, capfd):
    explorer = WIDGETS[name]()
    move = Moved(explorer)
    argument = next(iter(move.widgets))
    first = move.widgets[argument].value
    other = next(value for value in reversed(move.offered(argument)) if value != first)
    assert move(**{argument: other}).svg() != explorer.svg()
    assert move(**{argument: first}).svg() == explorer.svg()  # the same choice, the same picture
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", WIDGETS)
def test_controls_are_named_in_words(name):
    for argument, widget in Moved(WIDGETS[name]()).widgets.items():
        assert len(widget.description) > 3, argument
        assert "_" not in widget.description


def page_of(bundles: list[dict]) -> str:
    shown = [nbformat.v4.new_output("display_data", data=data) for data in bundles]
    cell = nbformat.v4.new_code_cell("show()", outputs=shown, execution_count=1)
    page, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=[cell]))
    return page


@pytest.mark.parametrize("name", WIDGETS)
def test_a_page_without_a_kernel_shows_the_picture_and_no_widget(name):
    explorer = WIDGETS[name]()
    controls, picture = explorer.bundles()
    assert WIDGET in controls
    assert WIDGET not in picture
    page = page_of([controls, picture])  # as a learner's notebook is stored
    assert 'class="course-view"' in page
    assert "With a running kernel" in page
    assert controls[WIDGET]["model_id"] not in page


def test_what_the_repository_stores_has_picture_and_words_and_no_widget():
    bundles = WIDGETS["sharding"]().bundles()
    shown = [nbformat.v4.new_output("display_data", data=data) for data in bundles]
    cell = nbformat.v4.new_code_cell("show()", outputs=shown, execution_count=1)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    stored_outputs.normalise(notebook)
    controls, picture = cell.outputs
    assert set(controls.data) == {"text/plain"}
    assert set(picture.data) == {"text/plain", "text/html"}
    assert picture.data["text/plain"].startswith("MLP on 2 ranks")


@pytest.mark.parametrize("folder", ["notebooks", "solutions"])
def test_no_notebook_holds_the_state_of_widgets(root, folder):
    files = sorted((root / folder).glob("*.ipynb"))
    assert files
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "widgets" not in nbformat.reads(text, as_version=4).metadata, file.name
        assert WIDGET not in text, file.name
