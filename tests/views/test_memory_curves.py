"""Curves step where bytes changed, reach the peak, and never draw more than a picture can show."""

import pytest

from course_lib.observe import Memory
from course_lib.observe.events import Block
from course_lib.views.lettering import lettered
from course_lib.views.memory_curves import memory_curves
from tests.views.reading import outlines, spans

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


def heights(view):
    """From what to what number of bytes each kind reaches, in the panels from left to right."""
    return spans(view.figure.axes[0], axis=1)


def test_areas_lie_on_top_of_each_other_up_to_the_peak():
    view = memory_curves(memory())
    areas = heights(view)
    assert list(areas) == ["parameters", "gradients", "optimizer", "activations"]
    assert areas["parameters"] == [(0, 400)]
    assert max(stop for [(_, stop)] in areas.values()) == 400 + 400 + 900
    assert "rank 0: peak 1.7 kB" in lettered(view.figure.axes[0])


def test_time_can_be_that_of_the_clock_or_the_order_of_changes():
    def came(view):  # as a share of the width, when the activations came
        corners = outlines(view.figure.axes[0])["activations"][0]
        return min(x for x, y in corners if y == 400 + 900)

    assert came(memory_curves(memory(), over="time")) == 1 / 4  # seconds
    assert came(memory_curves(memory())) == 1 / 5  # changes
    assert {"0", "2 s", "4 s"} < {*lettered(memory_curves(memory(), over="time").figure.axes[0])}
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
    (ax,) = view.figure.axes
    assert ax.get_ylim() == (0, 1.08 * 11_600)
    (low, plain), (bottom, heavy) = heights(view)["activations"]
    assert (low, bottom, plain, heavy) == (400, 400, 1700, 11_600)
    assert "heavy" in view.text


def test_long_runs_keep_their_peak_and_few_points():
    many = [("other", 10 + k, 10.5 + k, 50 if k != 777 else 5000) for k in range(4000)]
    view = memory_curves(memory(more=many))
    assert heights(view)["other"][0][1] == 1600 + 5000
    assert len(outlines(view.figure.axes[0])["other"][0]) < 7000


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
