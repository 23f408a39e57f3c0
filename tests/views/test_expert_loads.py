"""The picture of experts counts rows, shares and what is dropped."""

import math

import pytest

from course_lib.views.expert_loads import expert_explorer, expert_loads
from tests.views.reading import Moved, boxes, places

# Two ranks, three experts: 12 rows, of which 8 for expert 1.
UNEVEN = [[1, 5, 0], [2, 3, 1]]
EVEN = [[2, 2, 2], [2, 2, 2]]


def test_the_words_count_rows_and_what_is_dropped():
    lines = expert_loads({"a run": [EVEN, UNEVEN]}, step=1, factor=1.0).text.splitlines()
    assert lines[0] == (
        "a run, step 1: the busiest expert has 67%, 2.0 times its share; factor 1 drops 33%"
    )
    rows = [list(map(int, line.split())) for line in lines[-3:]]
    assert rows == [[0, 3, 0], [1, 8, 4], [2, 1, 0]]


def test_without_a_capacity_nothing_is_dropped():
    view = expert_loads({"a": [UNEVEN]}, factor=math.inf)
    assert "dropped" not in view.text.splitlines()[0]
    assert "capacity" not in view.svg()


def test_every_flow_and_every_step_is_told():
    svg = expert_loads({"a": [EVEN, UNEVEN]}, step=1).svg()
    assert "rank 0 to expert 1: 5 rows" in svg
    assert "rank 0 to expert 2" not in svg  # nobody sends there
    assert "a, step 0: expert 1 has 33.3%" in svg
    assert "a, step 1: expert 1 has 66.7%" in svg


def test_all_runs_are_there_one_above_the_other_and_more_is_stronger():
    view = expert_loads({"a": [EVEN, UNEVEN], "b": [EVEN, EVEN]}, "b", 1, every=8)
    shares = {box.hint: box for box in boxes(view, "share")}
    assert len(shares) == 2 * 2 * 3
    above, below = shares["a, step 8: expert 1 has 66.7%"], shares["b, step 8: expert 1 has 33.3%"]
    assert above.y < below.y
    assert above.strength > below.strength
    ticks = places(view)
    assert below.x < ticks["8"][-1][0] < below.right
    assert "step" in ticks


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"runs": {"a": [EVEN]}, "step": 1}, "steps 0 to 0, and not 1"),
        ({"runs": {"a": [[[1]] * 9]}}, "1 to 8 ranks can be told apart, not 9"),
        ({"runs": {"a": [EVEN]}, "factor": 0.0}, "more than 0, not 0.0"),
    ],
)
def test_what_cannot_be_drawn_is_refused_with_both_numbers(arguments, words):
    with pytest.raises(ValueError, match=words):
        expert_loads(**arguments)


def test_the_explorer_counts_training_steps_and_goes_from_run_to_run():
    explorer = expert_explorer({"a": [EVEN, UNEVEN], "b": [EVEN, EVEN]}, every=10)
    assert explorer.text.startswith("a, step 10: the busiest expert has 67%")
    move = Moved(explorer)
    assert move.offered("step") == [0, 10]
    assert move(step=0).text.startswith("a, step 0: the busiest expert has 33%")
    with pytest.raises(ValueError, match="runs of 1 and 2 steps"):
        expert_explorer({"a": [EVEN], "b": [EVEN, EVEN]})
