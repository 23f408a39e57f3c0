"""The picture of overlap shows the layers, the buckets and how long the step is."""

import functools

import pytest

from course_lib.observe.hidden_communication import exposed, hidden_share
from course_lib.simulate.data_parallel import Layer, bucket_layers, data_parallel_step
from course_lib.views.overlap import overlap, overlap_step
from course_lib.views.widgets import explore
from tests.views.reading import Moved, boxes, keys

LAYERS = [Layer(f"l{i}", 1e-3, 2e-3, 2e6) for i in range(4)]


def step(bucket_bytes):
    return data_parallel_step(
        LAYERS, bucket_layers(LAYERS, bucket_bytes), lambda nbytes: nbytes / 1e9
    )


def test_every_layer_and_bucket_is_a_box():
    view = overlap({"small": step(2e6), "large": step(8e6)})
    assert len(boxes(view)) == 2 * 8 + 4 + 1
    words = [box.word for box in boxes(view)]
    assert words.count("l3") == 2 * 2 + 1  # both ways, in both steps, and in a bucket of its own
    assert words.count("l3–l0") == 1
    assert keys(view) == ["forward", "backward", "all-reduce of a bucket, hidden", "not hidden"]


def test_what_is_not_hidden_looks_so():
    def late(speed):
        step = data_parallel_step(LAYERS, bucket_layers(LAYERS, 2e6), lambda n: n / speed)
        wide = [box.wide for box in boxes(overlap({"a step": step}), "not hidden")]
        return len(wide), sum(wide)

    count, whole = late(1e9)
    assert count == 1
    # Half as fast: the last two of 4 ms and half of the second, which is cut where backward ends
    more, longer = late(0.5e9)
    assert more == 3
    assert longer > 2 * whole


def test_words_give_the_step_and_what_is_hidden():
    text = overlap({"small": step(2e6), "large": step(8e6)}).text
    # Four buckets of 2 ms, behind layers of 2 ms: only the last one sticks out.
    assert "small: 14 ms for 12 ms of computation, 75% of the communication hidden" in text
    assert "4 all-reduces, 8 ms in all" in text
    assert "large: 20 ms for 12 ms of computation, 0% of the communication hidden" in text
    assert exposed(step(8e6)) == pytest.approx(8e-3)
    assert hidden_share(step(2e6)) == pytest.approx(0.75)
    assert hidden_share(step(8e6)) == pytest.approx(0)


def test_nothing_is_refused():
    with pytest.raises(ValueError, match="no step to show"):
        overlap({})


def test_a_step_that_sends_nothing_says_nothing_of_it():
    assert overlap({"alone": data_parallel_step(LAYERS, [], len)}).text == (
        "alone: 12 ms for 12 ms of computation"
    )


def test_the_sliders_change_the_step():
    draw = functools.partial(overlap_step, LAYERS)
    explorer = explore(draw, bucket_MB=[1, 25], gigabits=[10, 25])
    assert explorer.text == overlap_step(LAYERS).text
    assert Moved(explorer)(bucket_MB=1).svg() == overlap_step(LAYERS, bucket_MB=1).svg()
    assert overlap_step(LAYERS, bucket_MB=1).svg() != explorer.svg()
    assert overlap_step(LAYERS, gigabits=10).text.startswith("64 ranks, 10 Gbit/s")
