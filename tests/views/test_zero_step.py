"""Which bytes are where in a step of ZeRO agrees with the formulas, and the picture with both."""

import pytest

from course_lib.simulate.memory_formulas import model_state_bytes
from course_lib.views.zero_step import LAYERS, STAGES, moments, zero_step
from tests.views.reading import tree

SVG = "{http://www.w3.org/2000/svg}"


def held(stage: int, ranks: int) -> dict[str, float]:
    return {moment.name: moment.held(ranks) for moment in moments(stage)}


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("stage", "moment"),
    # The formula counts what is there when all gradients are: whole until they are averaged, or
    # sharded, and without what is gathered for a moment.
    [(0, "backward, layer 0"), (1, "backward, layer 0"), (2, "optimizer"), (3, "optimizer")],
)
def test_bytes_are_those_of_the_formula(stage, moment, ranks):
    assert held(stage, ranks)[moment] == pytest.approx(model_state_bytes(1, ranks, stage))


@pytest.mark.parametrize("stage", range(4))
def test_a_step_ends_as_it_began_but_for_gradients_and_goes_through_all_layers(stage):
    names = [moment.name for moment in moments(stage)]
    forward = [f"forward, layer {layer}" for layer in range(LAYERS)]
    backward = [f"backward, layer {layer}" for layer in reversed(range(LAYERS))]
    assert names == ["between steps", *forward, *backward, "gradients averaged", "optimizer"]
    first, *_, last = moments(stage)
    for part in ("parameters", "optimizer"):
        assert first.cells(part, 1, 2) == last.cells(part, 1, 2)
    assert first.cells("gradients", 1, 2) == []


def test_only_under_zero_3_does_a_rank_ever_lack_parameters():
    for stage, lacks in enumerate((False, False, False, True)):
        counts = {len(moment.cells("parameters", 0, 4)) for moment in moments(stage)}
        assert (min(counts) < 4 * LAYERS) == lacks


def test_the_picture_has_a_shape_for_what_each_rank_has_of_each_owner():
    view = zero_step("ZeRO-3", ranks=2)
    frames = [g for g in tree(view).iter(f"{SVG}g") if g.get("class") == "frame"]
    assert [frame.get("data-name") for frame in frames] == [m.name for m in moments(3)]
    told = [path.findtext(f"{SVG}title") for path in frames[1].iter(f"{SVG}path")]
    assert told == [  # layer 0 is gathered
        "rank 0 has parameters of rank 0's shards, layers 0, 1, 2 and 3",
        "rank 0 has parameters of rank 1's shards, layer 0",
        "rank 1 has parameters of rank 0's shards, layer 0",
        "rank 1 has parameters of rank 1's shards, layers 0, 1, 2 and 3",
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("ZeRO-4",), "'ZeRO-4' is none of DDP, ZeRO-1"), (("DDP", 9), "1 to 8 ranks, not 9")],
)
def test_what_cannot_be_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        zero_step(*arguments)


def test_words_name_every_moment_with_its_bytes():
    lines = zero_step(STAGES[2], ranks=4, model="7.5B").text.splitlines()
    assert len(lines) == 3 + 3 + 2 * LAYERS
    assert lines[0].startswith("ZeRO-2 on 4 ranks, a model of 7.5B parameters: at most 44.1 GB")
    assert lines[1].startswith("Each bar has 4 layers, each cut into 4 shards")
    assert lines[-1].split()[:2] == ["optimizer", "5.50"]
