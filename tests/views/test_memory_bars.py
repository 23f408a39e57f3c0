"""Bars are as long as their bytes, and say what fits."""

import pytest

from course_lib.observe import Memory
from course_lib.observe.events import Block
from course_lib.simulate.memory_formulas import model_state_bytes
from course_lib.views.memory_bars import memory_bars, run_memory
from course_lib.views.zero_explorer import PRECISIONS, STATES, YOURS, zero_explorer, zero_memory
from course_lib.views.zero_step import SIZES
from tests.views.reading import Moved, boxes, keys, places, words

GB = 10**9
TWO = {
    "small": {"parameters": 2 * GB, "gradients": 1 * GB},
    "large": {"parameters": 2 * GB, "optimizer": 18 * GB},
}


def totals(view):
    """The pixels of each bar, from top to bottom."""
    ends = {}
    for box in boxes(view):
        ends[box.y] = ends.get(box.y, 0) + box.wide
    return list(ends.values())


def test_parts_lie_end_to_end_in_one_order():
    view = memory_bars(TWO)
    small, large = boxes(view, "parameters")
    (gradients,), (optimizer,) = boxes(view, "gradients"), boxes(view, "optimizer")
    assert small.x == large.x
    assert (gradients.x, optimizer.x) == (pytest.approx(small.right), pytest.approx(large.right))
    assert gradients.wide / small.wide == pytest.approx(1 / 2, abs=0.001)
    assert optimizer.wide / large.wide == pytest.approx(18 / 2, abs=0.01)
    assert optimizer.hint == "optimizer: 18 GB"
    assert keys(view) == ["parameters", "gradients", "optimizer"]
    assert {"3 GB", "20 GB", "small", "large"} < {*words(view)}


def test_the_words_say_the_same_and_what_fits():
    assert memory_bars(TWO, 16 * GB, "two bars").text.splitlines() == [
        "two bars",
        "       parameters  gradients  optimizer  total",
        "small        2 GB       1 GB          .   3 GB  fits",
        "large        2 GB          .      18 GB  20 GB  does not fit",
        "a device has 16 GB",
    ]


def test_what_does_not_fit_is_drawn_to_scale_and_cut_only_far_beyond_the_capacity():
    half = {"parameters": 5 * GB}
    whole = memory_bars({"a": half, "b": half | {"optimizer": 35 * GB}}, 10 * GB)
    assert totals(whole)[1] / totals(whole)[0] == pytest.approx(8, abs=0.01)
    view = memory_bars({"a": half, "b": half | {"optimizer": 4995 * GB}}, 10 * GB)
    assert {"5 GB", "5 TB, does not fit (cut)", "a device has 10 GB"} < {*words(view)}
    one, other = boxes(view, "parameters")
    assert one.wide == other.wide  # as long in the bar that is cut
    (end,) = boxes(view, "cut")
    assert end.hint == "optimizer: 5 TB, cut"
    assert end.right < places(view)["5 TB, does not fit (cut)"][0][0]
    assert "5 TB  does not fit" in view.text


def test_axes_have_units():
    assert {"bytes on a device", "0", "5 GB", "10 GB"} < {*words(memory_bars(TWO))}


def test_the_line_of_the_device_crosses_no_words():
    view = memory_bars({"a": {"optimizer": 9.9 * GB}}, 10 * GB)
    [(left, _)], [(device, _)] = places(view)["9.9 GB"], places(view)["a device has 10 GB"]
    assert left > device


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
    states = PRECISIONS[precision]
    expected = [model_state_bytes(1.5e9, devices, stage, states) for stage in range(4)]
    found = totals(view)
    assert [wide / found[0] for wide in found] == pytest.approx(
        [nbytes / expected[0] for nbytes in expected], abs=0.001
    )


def test_the_title_says_which_stage_is_the_first_to_fit():
    assert "ZeRO-1 is the first that fits" in zero_memory("7.5B", 64).text
    assert "ZeRO-2 is the first that fits" in zero_memory("7.5B", 16).text
    assert "nothing fits" in zero_memory("GPT-3 175B", 8, device="A100 SXM 80 GB").text
    found = [line.split()[-3:] for line in zero_memory().text.splitlines()[3:6]]
    # Figure 1 of ZeRO has 31.4 GB, 16.6 GB and 1.9 GB
    assert [f"{float(total):.1f}" for total, _, _ in found] == ["31.4", "16.6", "1.9"]


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
    assert {"6.2 kB", "1.24 kB", "rank 0", "rank 1"} < {*words(view)}


def test_the_learners_own_run_stands_beside_the_formula(own):
    explorer = zero_explorer(own={"stage 1": own}, own_parameters=100)
    assert Moved(explorer).offered("model") == [*SIZES, YOURS]
    view = zero_memory(YOURS, 2, "fp32, 4 + 4 + 8", own={"stage 1": own}, own_parameters=100)
    *_, measured = view.text.splitlines()
    assert " ".join(measured.split()) == "measured: stage 1 400 B 400 B 440 B 1.24 kB"
    assert "ZeRO-1                  400 B      400 B      400 B   1.2 kB" in view.text
    assert STATES == ("parameters", "gradients", "optimizer")


def test_without_a_run_there_is_nothing_of_the_learners_to_choose():
    assert Moved(zero_explorer()).offered("model") == [*SIZES]
