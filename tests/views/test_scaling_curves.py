"""Curves over devices: values, crossovers, and the published order of algorithms."""

import re

import pytest

from course_lib.simulate import collective_seconds, dgx_a100
from course_lib.views.palette import strokes
from course_lib.views.scaling_curves import (
    DEVICES,
    SIZES,
    all_reduce_explorer,
    all_reduce_scaling,
    scaling_curves,
)
from course_lib.views.units import time_text
from tests.views.reading import Moved, curves, words

LINES = {"falling": lambda n: 100 / n, "steady": lambda n: 2.0}


def test_the_crossover_is_named_and_the_least_marked():
    view = scaling_curves(LINES, (10, 50, 100), "two lines")
    assert view.text.splitlines() == [
        "two lines",
        "devices  falling  steady",
        "     10     10 s    *2 s",
        "     50     *2 s    *2 s",
        "    100     *1 s     2 s",
        "best: steady up to 10 devices, then falling",
    ]
    assert "best: steady up to 10 devices, then falling" in words(view)


def test_one_line_has_nothing_to_cross():
    assert "best" not in scaling_curves({"a": LINES["steady"]}, (8, 16)).text
    assert "best: steady throughout" in scaling_curves(LINES, (1, 2)).text


def test_points_lines_and_axes():
    view = scaling_curves(
        LINES, (8, 16), label="speed-up", text=lambda value: f"{value:g}x", log=False
    )
    falling, steady = ([y for _, y in points] for points in curves(view).values())
    zero = steady[0] + (steady[0] - falling[0]) * 2 / (12.5 - 2)
    assert (zero - falling[0]) / (zero - falling[1]) == pytest.approx(2, abs=0.01)
    assert {"8", "16", "2x", "12x", "speed-up", "devices, logarithmic"} < {*words(view)}


def test_a_scale_may_begin_above_nothing_and_hold_what_was_measured():
    view = scaling_curves(
        LINES, (50, 100), text="{:.1f}".format, log=False, best=None, lowest=0.5,
        measured={"falling": {100: 1.5}},
    )  # fmt: skip
    assert "best" not in view.text
    assert "*" not in view.text
    assert view.text.endswith("falling, measured: 1.5 on 100")
    assert "<title>falling, measured: 1.5</title>" in view.svg()
    assert "0.5" in words(view)
    assert "0" not in words(view)
    with pytest.raises(ValueError, match="measured, and no line: rising"):
        scaling_curves(LINES, (50, 100), measured={"rising": {50: 1}})


def test_an_all_reduce_costs_what_the_collectives_cost():
    view = all_reduce_scaling("100 MB")
    names = view.text.splitlines()[1].split()[1:]
    assert list(curves(view)) == names == ["ring", "tree", "hierarchical"]
    for n, row in zip(DEVICES, view.text.splitlines()[2:], strict=False):
        for name, shown in zip(names, re.findall(r"\*?([\d.]+ (?:ms|µs|s))", row), strict=True):
            cluster = dgx_a100.with_nodes(n // 8)
            seconds = collective_seconds(cluster, "all_reduce", range(n), 1e8, name)
            assert shown == time_text(seconds)


def test_large_tensors_want_the_hierarchy_and_small_ones_on_many_devices_the_tree():
    assert "then hierarchical" in all_reduce_scaling("100 MB").text
    assert all_reduce_scaling("10 kB").text.endswith("then tree")


def test_the_widget_covers_all_sizes():
    move = Moved(all_reduce_explorer())
    assert move.offered("size") == [*SIZES]
    for cluster in move.offered("cluster"):
        assert len(curves(all_reduce_scaling("1 MB", cluster))) == 3


def test_an_algorithm_looks_alike_in_every_picture():
    alone, among = strokes(["tree"]), strokes(["ring", "a line", "dist's tree"])
    assert alone["tree"] == among["dist's tree"]
    assert len({*among.values()}) == 3


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: scaling_curves({}), "1 to 5 lines"),
        (lambda: scaling_curves({str(k): LINES["steady"] for k in range(6)}), "not 6"),
        (lambda: scaling_curves(LINES, ()), r"devices = \[\]"),
        (lambda: scaling_curves(LINES, (0, 8)), r"devices = \[0, 8\]"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
