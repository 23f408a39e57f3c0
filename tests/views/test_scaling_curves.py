"""Curves over devices: values, crossovers, and the published order of algorithms."""

import pytest

from course_lib.simulate import collective_seconds, dgx_a100
from course_lib.views.lettering import lettered
from course_lib.views.scaling_curves import (
    DEVICES,
    SIZES,
    all_reduce_explorer,
    all_reduce_scaling,
    scaling_curves,
)
from tests.views.reading import curves

LINES = {"falling": lambda n: 100 / n, "steady": lambda n: 2.0}


def test_the_crossover_is_named_and_the_least_marked():
    view = scaling_curves(LINES, (10, 50, 100), "two lines")
    assert view.text.splitlines() == [
        "two lines",
        "devices  falling  steady",
        "     10     10 s    *2 s",
        "     50     *2 s    *2 s",
        "    100     *1 s     2 s",
        "least: steady up to 10 devices, then falling",
    ]
    assert view.figure.texts[1].get_text() == "least: steady up to 10 devices, then falling"


def test_one_line_has_nothing_to_cross():
    assert "least" not in scaling_curves({"a": LINES["steady"]}, (8, 16)).text
    assert "least: steady throughout" in scaling_curves(LINES, (1, 2)).text


def test_points_lines_and_axes():
    (ax,) = scaling_curves(
        LINES, (8, 16), label="speed-up", text=lambda value: f"{value:g}x", log=False
    ).figure.axes
    assert [list(line.get_ydata()) for line in curves(ax)] == [[12.5, 6.25], [2, 2]]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_yscale()) == ("devices", "speed-up", "linear")
    assert {"8", "16", "2x", "12x"} < {*lettered(ax)}


def test_an_all_reduce_costs_what_the_collectives_cost():
    (ax,) = all_reduce_scaling("100 MB").figure.axes
    by_name = {line.get_label(): line.get_ydata() for line in curves(ax)}
    for name, values in by_name.items():
        for n, value in zip(DEVICES, values, strict=True):
            cluster = dgx_a100.with_nodes(n // 8)
            assert value == collective_seconds(cluster, "all_reduce", range(n), 1e8, name)


def test_large_tensors_want_the_hierarchy_and_small_ones_on_many_devices_the_tree():
    assert "then hierarchical" in all_reduce_scaling("100 MB").text
    assert all_reduce_scaling("10 kB").text.endswith("then tree")


def test_the_widget_covers_all_sizes():
    sliders, _ = all_reduce_explorer().widget().children
    assert sliders.children[0].options == tuple(SIZES)
    for cluster in sliders.children[1].options:
        assert all_reduce_scaling("1 MB", cluster).png()


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
