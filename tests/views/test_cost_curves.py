"""The curves are those of the functions given, in the picture and in the text."""

import pytest

from course_lib.views.cost_curves import cost_curves
from course_lib.views.units import size_text, time_text
from tests.views.reading import curves, words

LINES = {"latency": lambda size: 1e-3, "bandwidth": lambda size: size * 1e-8}


def test_text_marks_the_fastest_at_each_size():
    rows = cost_curves(LINES, title="Two lines").text.splitlines()
    assert rows[0] == "Two lines"
    assert rows[1].split() == ["size", "latency", "bandwidth"]
    table = {tuple(row.split()[:2]): row for row in rows[2:-1]}
    assert "*100 µs" in table["10", "kB"]
    assert "*1 ms" in table["1", "MB"]
    assert table["1", "MB"].count("*") == 1


def test_picture_holds_the_lines_and_the_points():
    view = cost_curves(LINES, points={"measured": ([1e3, 1e5], [1e-3, 2e-3])})
    latency, bandwidth = curves(view).values()
    assert {y for _, y in latency} == {latency[0][1]}
    slopes = {
        round((b[1] - a[1]) / (b[0] - a[0]), 2)
        for a, b in zip(bandwidth[::20], bandwidth[20::20], strict=False)
    }
    assert len(slopes) == 1  # straight where both scales are logarithmic
    assert "<title>measured: 100 kB in 2 ms</title>" in view.svg()
    assert "measured: 1 kB 1 ms, 100 kB 2 ms" in view.text


def test_times_of_less_than_a_decade_still_have_a_scale():
    view = cost_curves({"nearly flat": lambda size: 0.5 + size * 4e-10})
    assert {"500 ms", "600 ms", "900 ms"} < {*words(view)}


def test_a_scale_is_as_wide_as_asked():
    view = cost_curves(LINES, sizes=(1e5, 1e7))
    assert {"100 kB", "10 MB"} <= {*words(view)}
    assert "1 kB" not in words(view)
    assert "1 kB" not in view.text


def test_a_single_line_has_nothing_to_compare():
    assert "*" not in cost_curves({"latency": LINES["latency"]}).text


def test_more_lines_than_can_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="5 lines can be told apart, not 6"):
        cost_curves({str(k): LINES["latency"] for k in range(6)})


@pytest.mark.parametrize(
    ("number", "text"), [(64, "64 B"), (1500, "1.5 kB"), (553e6, "553 MB"), (2e9, "2 GB")]
)
def test_sizes_read_as_people_write_them(number, text):
    assert size_text(number) == text


@pytest.mark.parametrize(
    ("number", "text"), [(2.5, "2.5 s"), (0.0021, "2.1 ms"), (50e-6, "50 µs"), (0.0, "0 µs")]
)
def test_times_read_as_people_write_them(number, text):
    assert time_text(number) == text
