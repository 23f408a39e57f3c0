"""Curves step where bytes changed, reach the peak, and never draw more than a picture can show."""

import pytest

from course_lib.observe import Memory
from course_lib.observe.events import Block
from course_lib.views.memory_curves import memory_curves

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


def outlines(view, panel=0):
    return {
        area.get_label(): area.get_paths()[0].get_extents()
        for area in view.figure.axes[panel].collections
    }


def test_areas_lie_on_top_of_each_other_up_to_the_peak():
    view = memory_curves(memory())
    areas = outlines(view)
    assert list(areas) == ["parameters", "gradients", "optimizer", "activations"]
    assert (areas["parameters"].ymin, areas["parameters"].ymax) == (0, 400)
    assert max(area.ymax for area in areas.values()) == 400 + 400 + 900
    assert view.figure.axes[0].get_title() == "rank 0: peak 1.7 kB"


def test_time_can_be_that_of_the_clock_or_the_order_of_changes():
    assert outlines(memory_curves(memory(), over="time"))["parameters"].xmax == 4.0
    assert outlines(memory_curves(memory()))["parameters"].xmax == 5  # changes
    axes = [memory_curves(memory(), over=over).figure.get_supxlabel() for over in ("order", "time")]
    assert axes == ["allocations and releases, in order", "time since the first"]


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
    left, right = view.figure.axes
    assert left.get_ylim() == right.get_ylim() == (0, 1.08 * 11_600)
    assert "heavy" in view.text


def test_long_runs_keep_their_peak_and_few_points():
    many = [("other", 10 + k, 10.5 + k, 50 if k != 777 else 5000) for k in range(4000)]
    view = memory_curves(memory(more=many))
    assert outlines(view)["other"].ymax == 1600 + 5000
    points = view.figure.axes[0].collections[0].get_paths()[0].vertices
    assert len(points) < 7000


def test_a_run_that_held_nothing_is_a_picture_too():
    assert memory_curves(Memory(1, [])).png().startswith(b"\x89PNG")


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
