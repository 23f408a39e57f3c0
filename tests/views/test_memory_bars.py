"""Bars are as long as their bytes, and say what fits."""

import pytest

from course_lib.observe import Memory
from course_lib.observe.events import Block
from course_lib.simulate.memory import model_state_bytes
from course_lib.views.lettering import lettered
from course_lib.views.memory_bars import memory_bars, run_memory
from course_lib.views.zero_explorer import (
    MODELS,
    PRECISIONS,
    STATES,
    YOURS,
    zero_explorer,
    zero_memory,
)
from tests.views.reading import places, spans

GB = 10**9
TWO = {
    "small": {"parameters": 2 * GB, "gradients": 1 * GB},
    "large": {"parameters": 2 * GB, "optimizer": 18 * GB},
}


def lengths(view):
    """Of each part of each bar, in GB, part by part."""
    (ax,) = view.figure.axes
    return [[(stop - start) / GB for start, stop in part] for part in spans(ax).values()]


def written(view):
    (ax,) = view.figure.axes
    return {*lettered(ax), *(text.get_text() for text in ax.texts)}


def test_parts_lie_end_to_end_in_one_order():
    view = memory_bars(TWO)
    assert lengths(view) == [[2, 2], [1, 0], [0, 18]]  # parameters, gradients, optimizer
    starts = [[start / GB for start, _ in part] for part in spans(view.figure.axes[0]).values()]
    assert starts == [[0, 0], [2, 2], [3, 2]]
    assert {"3 GB", "20 GB", "small", "large"} < written(view)


def test_the_words_say_the_same_and_what_fits():
    assert memory_bars(TWO, 16 * GB, "two bars").text.splitlines() == [
        "two bars",
        "       parameters  gradients  optimizer  total",
        "small        2 GB       1 GB          .  3 GB  fits",
        "large        2 GB          .      18 GB  20 GB  does not fit",
        "a device has 16 GB",
    ]


def test_capacity_is_a_line_and_what_is_far_longer_is_cut():
    view = memory_bars({"a": {"optimizer": 5 * GB}, "b": {"optimizer": 5000 * GB}}, 10 * GB)
    (ax,) = view.figure.axes
    assert ax.get_xlim()[1] < 40 * GB
    assert {"5 GB", "5 TB →", "a device: 10 GB"} < written(view)
    assert any(set(line.get_xdata()) == {10 * GB} for line in ax.lines)
    assert "5 TB" in view.text


def test_axes_have_units():
    (ax,) = memory_bars(TWO).figure.axes
    assert ax.get_xlabel() == "bytes on a device"
    assert {"0", "5 GB", "10 GB"} < written(memory_bars(TWO))


def test_the_line_of_the_device_crosses_no_words():
    view = memory_bars({"a": {"optimizer": 9.9 * GB}}, 10 * GB)
    [(left, _)] = places(view.figure.axes[0])["9.9 GB"]
    assert left > 10 * GB


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: memory_bars({}), "no bar"),
        (lambda: memory_bars({"a": {"weights": 1}}), "'weights'"),
        (lambda: memory_bars(TWO, 0), "capacity = 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


# ------------------------------------------------------------------------------------------------
# ZeRO
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("devices", [1, 64])
def test_bars_are_the_formulas_sums(precision, devices):
    view = zero_memory("GPT-2 1.5B", devices, precision)
    totals = [sum(parts) for parts in zip(*lengths(view), strict=True)]
    expected = [
        model_state_bytes(1.5e9, devices, stage, PRECISIONS[precision]) / GB for stage in range(4)
    ]
    assert totals[:4] == pytest.approx(expected)
    assert totals[4] == pytest.approx(1.5 * PRECISIONS[precision].parameter)


def test_the_title_says_which_stage_is_the_first_to_fit():
    # Figure 1 of ZeRO: 120, 31.4, 16.6 and 1.9 GB
    assert "ZeRO 1 is the first that fits" in zero_memory("7.5B", 64).text
    assert "ZeRO 2 is the first that fits" in zero_memory("7.5B", 16).text
    assert "nothing fits" in zero_memory("GPT-3 175B", 8, device="A100 SXM 80 GB").text
    assert "31.4 GB  fits" in zero_memory().text


def block(rank, kind, nbytes):
    return Block(rank, n=0, kind=kind, steps=[(0.0, nbytes, False)])


@pytest.fixture
def own():
    blocks = [block(0, "parameters", 400), block(0, "gradients", 400), block(0, "optimizer", 400)]
    blocks += [block(1, "parameters", 400), block(1, "gradients", 400), block(1, "optimizer", 440)]
    return Memory(2, [*blocks, block(0, "activations", 5000)])


def test_a_run_is_shown_rank_by_rank(own):
    view = run_memory(own)
    assert view.text.splitlines()[0] == "at each rank's peak; most on rank 0, 6.2 kB"
    assert {"6.2 kB", "1.24 kB", "rank 0", "rank 1"} < written(view)


def test_the_learners_own_run_stands_beside_the_formula(own):
    explorer = zero_explorer(own={"stage 1": own}, own_parameters=100)
    sliders, _ = explorer.widget().children
    assert sliders.children[0].options == (*MODELS, YOURS)
    view = zero_memory(YOURS, 2, "fp32, 4 + 4 + 8", own={"stage 1": own}, own_parameters=100)
    *_, measured = view.text.splitlines()
    assert " ".join(measured.split()) == "measured: stage 1 400 B 400 B 440 B 1.24 kB"
    assert "ZeRO 1                  400 B      400 B      400 B  1.2 kB" in view.text
    assert STATES == ("parameters", "gradients", "optimizer")


def test_without_a_run_there_is_nothing_of_the_learners_to_choose():
    sliders, _ = zero_explorer().widget().children
    assert sliders.children[0].options == tuple(MODELS)
