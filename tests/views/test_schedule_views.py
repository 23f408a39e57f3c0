"""The pictures of pipelines say what the timeline says, and sliders reach every kind."""

import inspect

import pytest

from course_lib.observe import CommEvent, Frame
from course_lib.observe.timeline import COMPUTE, Timeline, Track
from course_lib.simulate.pipeline import simulate
from course_lib.techniques.schedules import Op, gpipe, interleaved, one_f_one_b, zb_h1
from course_lib.views.gantt_chart import gantt_chart
from course_lib.views.schedule_explorer import KINDS, pipeline_timeline, schedule_explorer
from course_lib.views.source_lines import function_around
from tests.views.reading import Moved, keys, places, tree, words
from tests.views.reading import boxes as all_boxes

BUBBLE = "idle (bubble)"


def boxes(view, key=None):
    """All but idle time, or those of a key."""
    return [box for box in all_boxes(view, key) if key or not box.key.startswith("idle")]


def test_every_operation_is_a_box_with_its_microbatch_in_it():
    view = gantt_chart(simulate(one_f_one_b(3, 4)), "mine")
    found = [box.word for box in boxes(view)]
    assert {text: found.count(text) for text in found} == dict.fromkeys("0123", 6)
    assert keys(view) == ["forward", "backward", BUBBLE]
    assert boxes(view)[0].hint == "rank 0: forward of microbatch 0 on stage 0\n0 to 1"


@pytest.mark.parametrize("m", [4, 12, 24, 32])
def test_all_boxes_have_their_number_or_none_has(m):
    found = {bool(box.word) for box in boxes(gantt_chart(simulate(zb_h1(8, m))))}
    assert len(found) == 1
    assert found == {m < 24}


def test_many_narrow_boxes_are_all_seen():
    view = gantt_chart(simulate(one_f_one_b(8, 200)))
    assert len(boxes(view, "forward")) == 8 * 200
    assert min(box.wide for box in boxes(view)) >= 0.7


def test_what_each_rank_holds_stands_beside_its_row():
    assert [word for word in words(gantt_chart(simulate(one_f_one_b(3, 4)))) if "holds" in word
    ] == ["holds 3", "holds 2", "holds 1"]  # fmt: skip


def test_words_are_the_grid_and_the_numbers():
    head, *grid, held = gantt_chart(simulate(gpipe(2, 2)), "GPipe").text.splitlines()
    assert head == (
        "GPipe: 9 time units, ranks idle 33.3% of the time, at most 2 microbatches in flight"
    )
    assert grid == simulate(gpipe(2, 2)).text().splitlines()
    assert held == "in flight at most, stages 0 to 1: 2 2"


@pytest.mark.parametrize("make", [gpipe, one_f_one_b, zb_h1])
def test_the_bubble_is_drawn_up_to_the_end_and_is_what_the_head_says(make):
    timeline = simulate(make(4, 8))
    view = gantt_chart(timeline)
    row = [box for box in boxes(view, "forward") if box.hint.startswith("rank 3")]
    unit = row[0].wide + 1  # less the gap between boxes
    idle = boxes(view, BUBBLE)
    assert sum(box.wide + 1 for box in idle) == pytest.approx(sum(timeline.idle) * unit, rel=0.01)
    assert idle[0].fill == "pale"
    assert "rank 3: idle (bubble)\n0 to 3" in [box.hint for box in idle]


def test_timelines_side_by_side_share_one_scale():
    view = gantt_chart({"a": simulate(gpipe(2, 2)), "b": simulate(gpipe(2, 4))})
    assert len(boxes(view)) == 2 * 2 * 2 + 2 * 2 * 4
    assert len({box.wide for box in boxes(view, "forward")}) <= 2  # but for rounding
    assert view.text.count("time units, ranks idle") == 2


def test_chunks_have_colours_where_a_rank_has_several():
    view = gantt_chart(simulate(interleaved(2, 2, 2)))
    assert [word for word in words(view) if "holds" in word] == ["holds 2", "holds 1.5"]
    assert view.picture.title.endswith("at most 2 microbatches' worth in flight")
    assert {box.word for box in boxes(view)} == {"0", "1"}
    assert keys(view) == [
        "forward, chunk 0", "forward, chunk 1", "backward, chunk 0", "backward, chunk 1", BUBBLE,
    ]  # fmt: skip
    assert len({box.fill for box in boxes(view)}) == 4


def test_ranks_that_do_the_same_share_a_row():
    tracks = [Track(rank, COMPUTE, [0, 2], [1, 4], ["work", "more"]) for rank in range(4)]
    tracks[3] = tracks[3]._replace(starts=[0, 3])
    view = gantt_chart(Timeline(4, tracks))
    assert [word for word in words(view) if "rank" in word[:5]] == ["ranks 0-2", "rank 3"]
    assert boxes(view)[0].hint.startswith("ranks 0-2: work")


def test_messages_alone_have_no_grid_of_dots_no_lane_of_computation_and_nothing_idle():
    sent = Track(0, "send", [0.0, 1.0], [1.0, 2.0], ["send to 1"] * 2)
    view = gantt_chart(Timeline(2, [sent]), "a step")
    assert view.text == "a step: 2 time units, messages only"
    assert keys(view) == ["sent"]
    one, other = boxes(view, "sent")
    assert one.high > 10
    assert other.x - one.right == pytest.approx(1, abs=0.02)
    ((_, y),) = places(view)["rank 0"]
    assert one.y < y < one.y + one.high  # its name stands beside it


def test_a_rank_that_sends_is_not_called_idle():
    work = Track(0, COMPUTE, [0], [1], ["train"])
    sent = Track(0, "send", [1], [4], ["send to 1"])
    view = gantt_chart(Timeline(2, [work, sent]))
    assert view.text.splitlines()[0] == "4 time units, ranks compute 12.5% of the time"
    assert keys(view) == ["computation", "sent"]
    alone = gantt_chart(Timeline(2, [work]))
    assert "ranks idle 50.0% of the time" in alone.text
    assert keys(alone) == ["computation", "idle"]


def test_measured_times_are_told_by_their_order():
    track = Track(0, COMPUTE, [0.0, 0.31], [0.3, 0.9], [Op("F", 0, 0), Op("B", 0, 0)])
    assert "rank 0 | F0.0 B0.0" in gantt_chart(Timeline(1, [track])).text.splitlines()


SECONDS = Timeline(
    2,
    [
        Track(0, COMPUTE, [0.0, 0.002], [0.001, 0.003], ["forward", "backward"]),
        Track(1, COMPUTE, [0.001], [0.003], [Op("F", 1, 0)]),
        Track(0, "send", [0.001], [0.0012], ["send to 1"]),
        Track(1, "receive", [0.001], [0.0012], ["receive from 0"]),
    ],
)


def test_recordings_have_seconds_names_and_wires():
    view = gantt_chart(SECONDS, "mine", unit="s")
    head, *orders, _ = view.text.splitlines()
    assert head.startswith("mine: 3 ms, ranks idle 33.3%")
    assert orders == ["rank 0 | forward backward", "rank 1 | F1.0"]
    assert len(boxes(view)) == 5
    assert {*words(view)} > {"forward", "backward", "rank 0", "rank 1", "2 ms"}
    assert "time; a number in a box is a microbatch" in words(view)
    assert keys(view) == ["forward", "computation", "sent", "received", BUBBLE]
    assert "from rank 0 to rank 1" in view.svg()


def test_computation_is_not_called_by_the_messages_around_it():
    event = CommEvent(
        rank=0, n=0, op="send", group="", ranks=(0, 1), peer=1, tag=0, nbytes=4000, shapes=((4,),),
        dtype="uint8", reduce_op=None, blocking=True, native=False, issued=0.0,
        where=(Frame("a_file.py", 7, "ring"),), spans=("all-reduce",),
    )  # fmt: skip
    compute = Track(0, COMPUTE, [0.0, 0.002], [0.001, 0.003], ["all-reduce", "norm"])
    send = Track(0, "send", [0.001], [0.002], ["send to 1"], [event])
    view = gantt_chart(Timeline(2, [compute, send]), unit="s")
    assert [box.word for box in boxes(view, "computation")] == ["", "norm"]
    assert "rank 0 | computes norm" in view.text.splitlines()
    assert boxes(view, "sent")[0].hint == ("rank 0: send to 1, 4 kB\nline 7 of ring\n1 ms to 2 ms")


def test_a_measured_run_and_a_simulated_one_can_each_have_the_whole_width():
    view = gantt_chart({"mine": SECONDS, "ideal": simulate(gpipe(2, 2))}, scale="each")
    assert "time, of each run's own length" in words(view)
    ends = [max(box.right for box in boxes(view, key)) for key in ("computation", "backward")]
    assert ends[0] == pytest.approx(ends[1], abs=0.1)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gantt_chart({}), "no timeline"),
        (lambda: gantt_chart(SECONDS, unit="ms"), "unit = 'ms'"),
        (lambda: gantt_chart(SECONDS, scale="own"), "scale = 'own'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_schedule_of_the_same_work(kind):
    view = pipeline_timeline(kind, p=2, m=4)
    work = 2 * 4 * (2 if kind == "interleaved" else 1) * (3 if kind == "ZB-H1" else 2)
    assert len(boxes(view)) == work
    assert kind in view.text


def test_costs_are_those_of_a_rank_however_many_stages_it_has():
    # (m v + p - 1) (1 + 2) / v = (8 + 1) * 3 / 2
    assert "13.5 time units" in pipeline_timeline("interleaved", p=2, m=4, v=2).text


def test_what_makes_no_schedule_is_said_in_place_of_a_picture():
    view = pipeline_timeline("interleaved", p=4, m=6)
    assert "m = 6 microbatches are not a multiple of p = 4" in view.text
    assert not boxes(view)


def mine(p, m):
    if m == 1:
        raise NotImplementedError("not attempted yet")
    return [[("F", s, i) for i in range(m)] + [("B", s, i) for i in range(m)] for s in range(p)]


def test_ones_own_table_is_one_more_schedule_and_stands_beside_any():
    move = Moved(schedule_explorer({"mine": mine}))
    shown = move(kind="mine", p=2, m=3)
    assert shown.text == pipeline_timeline("mine", p=2, m=3, own={"mine": mine}).text
    assert len(boxes(shown)) == 2 * 2 * 3
    assert "not attempted yet" in move(m=1).text
    both = move(m=3, beside="1F1B")
    assert len(boxes(both)) == 2 * 2 * 2 * 3
    assert both.text.count("in flight on each rank") == 2


def test_a_single_table_of_ones_own_needs_no_name():
    move = Moved(schedule_explorer(mine))
    named = pipeline_timeline("yours", p=2, m=3, own={"yours": mine})
    assert move(kind="yours", p=2, m=3).text == named.text


def test_two_schedules_are_compared_by_length_and_by_their_first_difference():
    both = pipeline_timeline("1F1B", "mine", p=2, m=3, own={"mine": mine})
    # In 1F1B rank 1 has F0 B0 F1 ..., in mine F0 F1 F2 ...
    found = (
        "mine takes as long as 1F1B. The first difference: position 1 of rank 1 is F1.1, "
        "and B1.0 in 1F1B."
    )
    assert both.text.splitlines()[-1] == found
    assert found in words(both)
    same = pipeline_timeline("GPipe", "mine", p=2, m=3, own={"mine": mine}).text
    assert same.endswith("mine takes as long as GPipe: every rank does the same in the same order.")
    longer = pipeline_timeline("ZB-H1", "1F1B", p=2, m=3).text
    assert "1F1B takes 2 time units more than ZB-H1. Its rows have other" in longer


def test_what_changes_nothing_is_disabled():
    move = Moved(schedule_explorer())
    assert move.widgets["v"].disabled
    assert move.widgets["weight"].disabled
    move(kind="interleaved")
    assert not move.widgets["v"].disabled
    move(kind="1F1B", beside="ZB-H1")
    assert (move.widgets["v"].disabled, move.widgets["weight"].disabled) == (True, False)


def test_the_first_picture_is_1f1b():
    assert schedule_explorer().text == pipeline_timeline().text


def test_an_operation_names_its_line_and_the_picture_keeps_the_function_around_it():
    lines, first = inspect.getsourcelines(mine)
    frame = Frame(__file__, first + 2, "mine")
    event = CommEvent(
        rank=0, n=0, op="send", group="", ranks=(0, 1), peer=1, tag=0, nbytes=4000, shapes=((4,),),
        dtype="uint8", reduce_op=None, blocking=True, native=False, issued=0.0, where=(frame,),
    )  # fmt: skip
    twice = Track(0, "send", [0.001, 0.002], [0.002, 0.003], ["send to 1"] * 2, [event] * 2)
    root = tree(gantt_chart(Timeline(2, [twice]), unit="s"))
    (kept,) = root.findall("{*}metadata")
    assert kept.text.splitlines() == "".join(lines).splitlines()
    assert (kept.get("data-name"), kept.get("data-first")) == ("mine", str(first))
    named = [g.get("data-line") for g in root.iter("{http://www.w3.org/2000/svg}g")]
    assert [line for line in named if line] == [f"0:{first + 2}"] * 2


@pytest.mark.parametrize(
    ("index", "name", "found"),
    [
        (4, "f", (0, 6)),  # its head goes over several lines
        (8, "<module>", (5, 12)),
        (60, "long", (52, 69)),
    ],
)
def test_a_function_is_found_around_a_line(index, name, found):
    f = ["def f(", "    a,", ") -> int:", "", "    return 1", "    # f", "", ""]
    lines = [*f, "x = f(1)", "y = 2", "def long():", *["    step()"] * 70, "z = 3"]
    assert function_around(lines, index, name) == found


def test_words_that_do_not_fit_are_kept_for_where_the_picture_is_enlarged():
    svg = gantt_chart(simulate(one_f_one_b(8, 200))).svg()
    assert svg.count(" data-word='199'") == 2 * 8
