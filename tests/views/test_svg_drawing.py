"""Pictures are well-formed, whatever words they hold, and a matplotlib figure is one too."""

import re
import xml.etree.ElementTree as ElementTree

import pytest
from matplotlib.figure import Figure

from course_lib.views.charts import decades, round_numbers
from course_lib.views.palette import Fill
from course_lib.views.svg_drawing import WIDTH, Picture, width, wrapped
from course_lib.views.view import View
from tests.views.reading import boxes, shown_in, words


def test_any_words_can_be_written_and_told():
    picture = Picture("a < b & 'c' \"d\"")
    picture.box(1, 2, 3, 4, Fill("#123456"), 'x < y\'s "z"', "<&>", key="it's")
    view = View(picture, "words")
    (box,) = boxes(view)
    assert (box.hint, box.word, box.fill) == ('x < y\'s "z"', "<&>", "#123456")
    assert words(view) == ["a < b & 'c' \"d\"", "<&>"]
    assert shown_in(view._repr_mimebundle_()) == view.svg()
    assert "&lt;" in View(picture, "<script>").html().split("src=")[0]


def test_numbers_have_at_most_two_digits_behind_the_point():
    picture = Picture("t")
    picture.line([(1 / 3, -0.0001), (2e6 / 7, 100)])
    assert "points='0.33,0 285714.29,100'" in picture.svg()


def test_long_words_are_put_in_lines_that_fit():
    text = "one two three four five six seven eight nine ten " * 3
    lines = wrapped(text, 200)
    assert " ".join(lines) == text.strip()
    assert max(map(width, lines)) <= 200
    assert Picture(text * 4).height > Picture("one").height


def test_a_hatch_lies_over_its_colour_once_for_all_boxes():
    picture = Picture("t")
    for x in (0, 20):
        picture.box(x, 0, 10, 10, Fill("#e69f00", "//"), key="optimizer")
    assert picture.svg().count("<pattern") == 1
    assert picture.svg().count("url(#cv-lines)") == 2


def test_a_matplotlib_figure_is_a_picture_of_its_natural_size_and_has_the_same_bytes():
    def drawn():
        figure = Figure(figsize=(4, 2))
        figure.subplots().plot([1, 3, 2])
        return View(figure, "a line")

    root = ElementTree.fromstring(drawn().svg())
    assert (root.get("width"), root.get("height")) == ("384", "192")
    assert drawn().html() == drawn().html()
    assert 'width="384"' in drawn().html()


def test_the_script_has_no_comments_and_is_in_every_picture():
    html = View(Picture("t"), "words").html()
    script = re.search(r"<script>(.*?)</script>", html, re.S).group(1)
    assert script.startswith("(() => {")
    assert not re.search(r"^\s*//", script, re.M)
    assert f"width='{WIDTH}'" in shown_in({"text/html": html})


def test_a_picture_carries_only_the_scripts_that_it_has_a_use_for():
    plain, played, stepped = Picture("t"), Picture("t"), Picture("t")
    played.player(0, 10, 0, 10, "1 s")
    with stepped.group("frame", "first"):
        stepped.text(0, 0, "words")
    found = [
        [part in View(picture, "words").html() for part in ("player(", "showSource", "courseFrame")]
        for picture in (plain, played, stepped)
    ]
    assert found == [[False, False, False], [True, True, False], [True, False, True]]


@pytest.mark.parametrize(
    ("low", "high", "most", "numbers"),
    [(0, 10, 5, [0, 2, 4, 6, 8, 10]), (0.5, 0.9, 6, [0.5, 0.6, 0.7, 0.8, 0.9]), (3, 3, 4, [3])],
)
def test_round_numbers(low, high, most, numbers):
    assert list(round_numbers(low, high, most, str)) == pytest.approx(numbers)


def test_decades():
    assert list(decades(1, 1e6, str)) == [10**k for k in range(7)]
    assert len(decades(1e-9, 1e20, str)) <= 10
