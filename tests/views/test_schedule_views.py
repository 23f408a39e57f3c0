"""The pictures of pipelines say what the timeline says, and sliders reach every kind."""

import pytest
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb

from course_lib.observe.timeline import COMPUTE, Timeline, Track
from course_lib.simulate.pipeline import simulate
from course_lib.techniques.schedules import Op, gpipe, interleaved, one_f_one_b
from course_lib.views.lettering import lettered
from course_lib.views.palette import QUIET
from course_lib.views.schedule_explorer import KINDS, pipeline_timeline, schedule_explorer
from course_lib.views.schedule_gantt import schedule_gantt
from tests.views.reading import places


def boxes(view):
    return sum(
        len(collection.get_paths())
        for collection in view.figure.axes[0].collections
        if isinstance(collection, PolyCollection)
    )


def labels(view):
    return lettered(view.figure.axes[0])


def test_every_operation_is_a_box_with_its_microbatch_in_it():
    view = schedule_gantt(simulate(one_f_one_b(3, 4)), "mine")
    assert boxes(view) == 2 * 3 * 4
    spots = places(view.figure.axes[0])
    assert {text: sum(y > 0 for _, y in spots[text]) for text in "0123"} == dict.fromkeys("0123", 6)
    assert lettered(view.figure) == ["forward", "backward"]


def test_words_are_the_grid_and_the_numbers_of_both_conventions():
    head, *grid = schedule_gantt(simulate(gpipe(2, 2)), "GPipe").text.splitlines()
    assert head == (
        "GPipe: 9 long, idle 33.3% of all the time (50.0% of the working time), in flight 2 2"
    )
    assert grid == simulate(gpipe(2, 2)).text().splitlines()


def test_timelines_side_by_side_share_one_scale():
    view = schedule_gantt({"a": simulate(gpipe(2, 2)), "b": simulate(gpipe(2, 4))})
    assert boxes(view) == 2 * 2 * 2 + 2 * 2 * 4
    assert view.figure.axes[0].get_xlim() == (0, 15)
    assert view.text.count("long, idle") == 2


def test_stages_are_named_where_a_rank_has_several():
    assert "2.1" in labels(schedule_gantt(simulate(interleaved(2, 2, 2))))


def test_measured_times_are_told_by_their_order():
    track = Track(0, COMPUTE, [0.0, 0.31], [0.3, 0.9], [Op("F", 0, 0), Op("B", 0, 0)])
    assert schedule_gantt(Timeline(1, [track])).text.endswith("rank 0 | F0.0 B0.0")


SECONDS = Timeline(
    2,
    [
        Track(0, COMPUTE, [0.0, 0.002], [0.001, 0.003], ["forward", "backward"]),
        Track(1, COMPUTE, [0.001], [0.003], [Op("F", 1, 0)]),
        Track(0, "send", [0.001], [0.0012], ["send to 1"]),
    ],
)


def test_recordings_have_seconds_names_and_wires():
    view = schedule_gantt(SECONDS, "mine", unit="s")
    head, *orders = view.text.splitlines()
    assert head.startswith("mine: 3 ms long, idle 33.3%")
    assert orders == ["rank 0 | forward backward", "rank 1 | F1.0"]
    assert boxes(view) == 4
    assert {*labels(view)} > {"forward", "backward", "rank 0", "rank 1", "2 ms"}
    assert lettered(view.figure) == ["forward", "other computation", "on the wires"]
    assert view.figure.axes[0].get_xlabel() == "time"


def test_a_measured_run_and_a_simulated_one_can_each_have_the_whole_width():
    view = schedule_gantt({"mine": SECONDS, "ideal": simulate(gpipe(2, 2))}, scale="each")
    (ax,) = view.figure.axes
    assert ax.get_xlabel() == "time, of each run's own length"
    fills = [c for c in ax.collections if isinstance(c, PolyCollection)]
    by_color = {tuple(c.get_facecolor()[0][:3]): c for c in fills}
    other = by_color[to_rgb(QUIET)]  # forward and backward of "mine", which ends at 3 ms
    assert max(path.vertices[:, 0].max() for path in other.get_paths()) == ax.get_xlim()[1] == 9


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: schedule_gantt({}), "no timeline"),
        (lambda: schedule_gantt(SECONDS, unit="ms"), "unit = 'ms'"),
        (lambda: schedule_gantt(SECONDS, scale="own"), "scale = 'own'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_schedule_of_the_same_work(kind):
    view = pipeline_timeline(kind, p=2, m=4)
    work = 2 * 4 * (2 if kind == "interleaved" else 1) * (3 if kind == "ZB-H1" else 2)
    assert boxes(view) == work
    assert kind in view.text


def test_costs_are_those_of_a_rank_however_many_stages_it_has():
    assert "(m" not in pipeline_timeline("interleaved", p=2, m=4, v=2).text
    # (m v + p - 1) (1 + 2) / v = (8 + 1) * 3 / 2
    assert "13.5 long" in pipeline_timeline("interleaved", p=2, m=4, v=2).text


def test_what_makes_no_schedule_is_said_in_place_of_a_picture():
    view = pipeline_timeline("interleaved", p=4, m=6)
    assert "m = 6 microbatches are not a multiple of p = 4" in view.text
    assert not view.figure.axes


def mine(p, m):
    if m == 1:
        raise NotImplementedError("not attempted yet")
    return [[("F", s, i) for i in range(m)] + [("B", s, i) for i in range(m)] for s in range(p)]


def test_the_learners_own_table_is_one_more_kind():
    explorer = schedule_explorer(own=mine)
    sliders, image = explorer.widget().children
    kind, p, m, *_ = sliders.children
    before = image.value
    kind.value, p.value, m.value = "yours", 2, 3
    assert image.value == pipeline_timeline("yours", p=2, m=3, own=mine).png() != before
    m.value = 1
    assert image.value == pipeline_timeline("yours", p=2, m=1, own=mine).png()
    assert "not attempted yet" in pipeline_timeline("yours", p=2, m=1, own=mine).text


def test_the_first_picture_is_1f1b():
    assert schedule_explorer().text == pipeline_timeline().text
