"""The planner's picture is the planner's table."""

import pytest

from course_lib.simulate import Mixture, Transformer, dgx_a100, dgx_h100, plan
from course_lib.views.palette import MEMORY, STEP
from course_lib.views.plan_explorer import SHOWN, plan_explorer, plan_view, planned
from tests.views.reading import Moved, boxes, keys, words

SMALL = Transformer(24, 2304, 24, seq=2048, vocab=51200)


@pytest.fixture(scope="module")
def plans():
    return plan(SMALL, dgx_a100, 64)


def test_one_bar_a_mesh_whose_parts_are_the_plans(plans):
    view = plan_view(plans, rows=3)
    chosen = [plans.of(mesh) for mesh in plans.meshes[:3]]
    held, times = {}, {}
    for box in boxes(view):
        ends = held if box.key in MEMORY else times
        ends[box.y] = ends.get(box.y, 0) + box.wide
    for pixels, amounts in (
        (held, [p.memory.total for p in chosen]),
        (times, [p.step.total for p in chosen]),
    ):
        first = next(iter(pixels.values())) / amounts[0]
        assert list(pixels.values()) == pytest.approx([first * n for n in amounts], rel=0.001)
    assert list(times.values()) == sorted(times.values())


def test_axes_that_few_models_need_are_shown_where_they_are_used(plans):
    assert not {"context", "expert"} & {*words(plan_view(plans))}
    mixture = Mixture(24, 2048, 16, seq=4096, vocab=51200, experts=8)
    view = plan_view(plan(mixture, dgx_h100.with_nodes(2), 64, allow=lambda m: m.expert == 8))
    assert "expert" in {*words(view)}
    assert any(word.endswith(" exp 8") for word in words(view))
    assert any(box.key == "expert" for box in boxes(view))


def test_keys_name_only_what_is_seen(plans):
    view = plan_view(plans)
    wide = {}
    for box in boxes(view):
        wide[box.key] = max(wide.get(box.key, 0), box.wide)
    assert keys(view) == [part for part in (*MEMORY, *STEP) if wide.get(part, 0) >= 1]
    assert set(wide) == set(keys(view))  # a sliver that nothing names is not drawn


def test_the_words_are_the_table(plans):
    assert plan_view(plans, rows=3).text == plans.text(3)


def test_title_axes_and_capacity(plans):
    view = plan_view(plans)
    assert view.picture.title.startswith("1.65B on 8 × A100 SXM 80 GB, batch 64: pipeline")
    assert {
        "memory of a device",
        "time of a step",
        "messages: only what nothing hides",
        "a device has 80 GB",
    } < {*words(view)}


def test_where_nothing_fits_the_picture_says_what_would_help():
    view = planned("GPT-3 175B", nodes=1)
    assert not boxes(view)
    assert "would do." in " ".join(words(view))
    assert "no plan fits" in view.text


def test_the_widget_begins_with_gpt_3_on_1024_devices():
    explorer = plan_explorer()
    assert explorer.text == planned().text
    assert "174.6B parameters, 1536 sequences of 2048 per step, on 1024 x" in explorer.text
    assert Moved(explorer).offered("model") == [*SHOWN]
