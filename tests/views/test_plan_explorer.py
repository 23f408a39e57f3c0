"""The planner's picture is the planner's table."""

import pytest

from course_lib.simulate import Transformer, dgx_a100, plan
from course_lib.views.plan_explorer import MODELS, plan_explorer, plan_view, planned
from tests.views.reading import spans

SMALL = Transformer(24, 2304, 24, seq=2048, vocab=51200)


@pytest.fixture(scope="module")
def plans():
    return plan(SMALL, dgx_a100, 64)


def test_one_bar_a_mesh_whose_parts_are_the_plans(plans):
    memory, step = plan_view(plans, rows=3).figure.axes
    chosen = [plans.of(mesh) for mesh in plans.meshes[:3]]
    held = [row[-1][1] for row in zip(*spans(memory).values(), strict=True)]
    assert held == pytest.approx([p.memory.total for p in chosen])
    times = [row[-1][1] for row in zip(*spans(step).values(), strict=True)]
    assert times == pytest.approx([p.step.total for p in chosen])
    assert times == sorted(times)


def test_the_words_are_the_table(plans):
    assert plan_view(plans, rows=3).text == plans.text(3)


def test_title_axes_and_capacity(plans):
    view = plan_view(plans)
    memory, step = view.figure.axes
    title = view.figure.texts[0].get_text()
    assert title.startswith("1.65B on 8 x A100 SXM 80 GB, batch 64: pipeline")
    assert memory.get_xlabel() == "bytes on a device of 80 GB"
    assert "communication that nothing hides" in step.get_xlabel()
    assert any(set(line.get_xdata()) == {80 * 10**9} for line in memory.lines)


def test_where_nothing_fits_the_picture_says_what_would_help():
    view = planned("GPT-3 175B", nodes=1)
    assert not view.figure.axes
    assert "would do." in view.figure.texts[0].get_text()
    assert "no plan fits" in view.text


def test_the_widget_begins_with_gpt_3_on_1024_devices():
    explorer = plan_explorer()
    assert explorer.text == planned().text
    assert "174.6B parameters, 1536 sequences of 2048 a step, on 1024 x" in explorer.text
    sliders, _ = explorer.widget().children
    assert sliders.children[0].options == tuple(MODELS)
