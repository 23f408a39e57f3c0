"""The watched step: passes in their order, and all-reduces among them or after them."""

from course_lib.ranks import run_ranks
from course_lib.train.overlap_experiment import (
    LAYER_BYTES,
    LAYERS,
    all_after_backward,
    buckets_of_the_course,
    one_step,
)

PASSES = [f"F {i}" for i in range(LAYERS)] + [f"B {i}" for i in reversed(range(LAYERS))]


def test_buckets_travel_while_backward_goes_on() -> None:
    run = run_ranks(one_step, 2, buckets_of_the_course, LAYER_BYTES)
    passes, sent = run[0], run.trace.of(0)
    assert [name for name, _ in passes] == PASSES
    # Beside the gradient a bucket carries who has one
    assert [event.nbytes // LAYER_BYTES for event in sent] == [1] * LAYERS
    # A layer's bucket leaves when backward is through with it: at least before the layer after next
    for event, (_, later) in zip(sent, passes[LAYERS + 2 :], strict=False):
        assert event.issued < later


def test_without_buckets_everything_leaves_at_the_end() -> None:
    run = run_ranks(one_step, 2, all_after_backward, 0)
    passes, (sent,) = run[0], run.trace.of(0)
    assert [name for name, _ in passes] == PASSES
    assert sent.nbytes == LAYERS * LAYER_BYTES
    assert sent.issued > passes[-1][1]
