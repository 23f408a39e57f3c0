"""A timeline's figures follow from its spans, and its text shows them."""

import pytest

from course_lib.observe.timeline import COMMUNICATION, COMPUTE, Span, Timeline, Track
from course_lib.simulate.pipeline import simulate
from course_lib.techniques.schedules import Op, gpipe, interleaved, one_f_one_b


def two_ranks():
    return Timeline(
        2,
        [
            Track(0, COMPUTE, [0, 4], [2, 8], ["step", "step"]),
            Track(0, COMMUNICATION, [2], [10], ["all_reduce"]),
            Track(1, COMPUTE, [1], [4], ["step"]),
        ],
    )


def test_communication_ends_the_run_but_is_not_work():
    t = two_ranks()
    assert t.makespan == 10
    assert t.busy == (6, 3)
    assert t.idle == (4, 7)
    assert t.bubble_fraction == 11 / 20
    assert t.bubble_over_ideal == 11 / 9
    assert repr(t) == "Timeline(2 ranks, makespan 10, bubble 55.0%)"


def test_spans_are_the_tracks_one_after_the_other():
    assert two_ranks().spans == (
        Span(0, 0, 2, "step"),
        Span(0, 4, 8, "step"),
        Span(0, 2, 10, "all_reduce", COMMUNICATION),
        Span(1, 1, 4, "step"),
    )


def test_an_empty_timeline_has_no_bubble():
    t = Timeline(2, [])
    assert (t.makespan, t.bubble_fraction, t.bubble_over_ideal) == (0, 0.0, 0.0)
    assert t.peak_in_flight == ()
    assert t.text() == "rank 0 |\nrank 1 |"


def test_a_track_of_a_rank_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="rank 2 in a world of 2"):
        Timeline(2, [Track(2, COMPUTE, [0], [1], ["step"])])


def test_text_has_a_column_per_unit_of_time():
    assert simulate(one_f_one_b(2, 2)).text() == (
        "rank 0 | F0 F1 .  .  B0 -- .  B1 --\nrank 1 | .  F0 B0 -- F1 B1 -- .  ."
    )
    assert simulate(gpipe(1, 2), 1, 1).text() == "rank 0 | F0 F1 B0 B1"


def test_text_names_the_stage_where_a_rank_has_several():
    first = simulate(interleaved(2, 2, 2), 1, 1).text().splitlines()[0]
    assert first == "rank 0 | F0.0 F0.1 F2.0 F2.1 .    B2.0 .    B2.1 B0.0 B0.1"


@pytest.mark.parametrize("scale", [10, 0.125, 0.1])
def test_text_does_not_depend_on_the_unit_of_the_costs(scale):
    scaled = simulate(one_f_one_b(3, 4), scale, 2 * scale)
    assert scaled.text() == simulate(one_f_one_b(3, 4)).text()


def test_text_of_measured_times_stays_readable():
    t = Timeline(1, [Track(0, COMPUTE, [0, 0.5], [1e-6, 1.0], ["tick", "step"])])
    (row,) = t.text().splitlines()
    assert row.count("--") + row.count("step") == 50


def test_text_can_be_coarser():
    assert simulate(gpipe(1, 2)).text(unit=3) == "rank 0 | F1 B1"
    with pytest.raises(ValueError, match="unit = 0"):
        simulate(gpipe(1, 2)).text(unit=0)


def test_held_counts_whole_activations_until_the_backward_and_the_rest_until_w():
    what = [Op("F", 0, 0), Op("F", 0, 1), Op("I", 0, 0), Op("I", 0, 1), Op("W", 0, 0)]
    t = Timeline(1, [Track(0, COMPUTE, range(5), range(1, 6), what)])
    assert t.peak_in_flight == (2,)
    assert t.peak_held(activation=10, weight=9) == (20,)
    assert t.peak_held(activation=10, weight=12) == (24,)
