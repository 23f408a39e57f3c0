"""Curves step where bytes changed, reach the peak, and never draw more than a picture can show."""

import pytest

from course_lib.observe import Label, Memory
from course_lib.observe.events import Block
from course_lib.views.memory_curves import memory_curves
from tests.views.reading import keys, layers, places, tree, words

STEPS = [  # kind, when it came, when it went, bytes
    ("parameters", 0.0, None, 400),
    ("activations", 1.0, 3.0, 900),
    ("gradients", 2.0, None, 400),
    ("optimizer", 4.0, None, 800),
]


def memory(ranks=1, more=()):
    blocks = []
    for rank in range(ranks):
        for n, (kind, start, end, nbytes) in enumerate([*STEPS, *more]):
            steps = [(start, nbytes, False)] + ([(end, 0, False)] if end is not None else [])
            blocks.append(Block(rank, n, kind, steps))
    return Memory(ranks, blocks)


def heights(view, kind):
    """From what to what pixel above the first panel's bottom a kind reaches, panel by panel."""
    bottom = max(y for corners in layers(view, "parameters") for _, y in corners)
    return [
        (bottom - max(y for _, y in corners), bottom - min(y for _, y in corners))
        for corners in layers(view, kind)
    ]


def test_areas_lie_on_top_of_each_other_up_to_the_peak():
    view = memory_curves(memory())
    assert keys(view) == ["parameters", "gradients", "optimizer", "activations"]
    [(low, high)] = heights(view, "parameters")
    [(_, top)] = heights(view, "activations")
    assert low == 0
    assert top / high == pytest.approx((400 + 400 + 900) / 400, abs=0.02)
    assert "rank 0: peak 1.7 kB" in words(view)


def test_time_can_be_that_of_the_clock_or_the_order_of_changes():
    def came(view):  # as a share of the width, when the activations came
        (corners,) = layers(view, "activations")
        left, right = min(x for x, _ in corners), max(x for x, _ in corners)
        bottom = max(y for _, y in corners)
        first = min(x for x, y in corners if y < bottom - 20)
        return (first - left) / (right - left)

    seconds, changes = memory_curves(memory(), over="time"), memory_curves(memory())
    assert came(seconds) == pytest.approx(1 / 4, abs=0.01)
    assert came(changes) == pytest.approx(1 / 5, abs=0.01)
    assert {"0", "2 s", "4 s", "time since the first"} < {*words(seconds)}
    assert "allocations and releases, in order" in words(changes)


def test_words_have_the_peaks_and_no_times():
    assert memory_curves(memory(2), "mine").text.splitlines() == [
        "mine",
        "at its peak  parameters  gradients  activations        total",
        "rank 0              400        400          900  1,700 bytes",
        "rank 1              400        400          900  1,700 bytes",
    ]


def test_runs_side_by_side_share_one_scale():
    heavy = memory(more=[("activations", 5.0, 6.0, 10_000)])
    view = memory_curves({"plain": memory(), "heavy": heavy})
    (low, plain), (bottom, heavy) = heights(view, "activations")
    assert low == pytest.approx(bottom)
    assert heavy / plain == pytest.approx(11_600 / 1700, rel=0.02)
    assert "heavy" in view.text


def test_the_peak_has_a_dot_that_tells_what_it_is_made_of():
    dots = list(tree(memory_curves(memory())).iter("{http://www.w3.org/2000/svg}circle"))
    told = [dot.findtext("{http://www.w3.org/2000/svg}title") for dot in dots]
    assert told[1] == "peak: 1.7 kB\nparameters 400 B\ngradients 400 B\nactivations 900 B"
    assert "the peak" in words(memory_curves(memory()))


def test_panels_have_the_same_marks_as_far_as_they_go():
    longer = memory(more=[("other", 5.0 + k, 5.5 + k, 10) for k in range(5)])
    marks = places(memory_curves({"short": memory(), "long": longer}))
    assert [len(marks[word]) for word in ("5", "10", "15")] == [2, 1, 1]


def test_parts_of_a_run_are_named_where_they_begin():
    spans = [("forward", 0.5, 0), ("backward", 2.0, 0), ("of another rank", 1.0, 1)]
    labels = [Label(rank, name, start, 9.0) for name, start, rank in spans]
    labels += [Label(0, "before", -1.0, 0.0), Label(0, "behind", 8.0, 9.0)]
    view = memory_curves({"a": memory()}, labels={"a": labels})
    found = places(view)
    assert not {"of another rank", "before", "behind"} & set(found)
    assert found["forward"][0][0] < found["backward"][0][0]


def test_long_runs_keep_their_peak_and_few_points():
    many = [("other", 10 + k, 10.5 + k, 50 if k != 777 else 5000) for k in range(4000)]
    view = memory_curves(memory(more=many))
    [(_, top)], [(_, parameters)] = heights(view, "other"), heights(view, "parameters")
    assert top / parameters == pytest.approx((1600 + 5000) / 400, rel=0.05)
    assert len(layers(view, "other")[0]) < 2000


def test_a_run_that_held_nothing_is_a_picture_too():
    assert "rank 0: peak 0 B" in words(memory_curves(Memory(1, [])))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: memory_curves({}), "1 to 8 panels, not 0"),
        (lambda: memory_curves(memory(9)), "1 to 8 panels, not 9"),
        (lambda: memory_curves({"a": memory(2)}, rank=2), "a has 2 ranks, no rank 2"),
        (lambda: memory_curves(memory(), over="bytes"), "over = 'bytes'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()
