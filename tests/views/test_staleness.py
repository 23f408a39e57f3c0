"""The picture of staleness obeys the bound, and says the same in words."""

import math
import random

import pytest

from course_lib.techniques.parameter_server import Progress
from course_lib.views.staleness import HORIZON, durations, play, staleness, staleness_explorer
from tests.views.reading import boxes


@pytest.mark.parametrize("bound", [0, 1, 2, 5, math.inf])
def test_it_follows_the_rule_of_the_technique(bound) -> None:
    rng = random.Random(3)
    for _ in range(20):
        workers = rng.randint(1, 6)
        played = play(workers, bound, durations(rng.uniform(1, 8), rng.uniform(0, 3)))
        assert max(played.leads) <= bound
        progress = Progress(range(workers), bound)
        # Ends come before starts of the same moment.
        moments = [(stop, 0, w) for w, _, _, stop in played.spans if stop < HORIZON]
        moments += [(start, 1, w) for w, _, start, _ in played.spans]
        for _, kind, worker in sorted(moments):
            if kind == 0:
                progress.finish(worker)
            else:
                assert progress.may_start(worker)


def test_every_worker_either_computes_or_waits() -> None:
    for bound in (0, 2, math.inf):
        played = play(3, bound, durations(2.5, 1.0))
        for worker in range(3):
            busy = sum(b - a for w, _, a, b in played.spans if w == worker)
            idle = sum(b - a for w, a, b in played.waits if w == worker)
            assert busy + idle == pytest.approx(HORIZON)


def test_equal_workers_are_n_minus_1_steps_stale_and_nobody_waits() -> None:
    played = play(4, math.inf, durations(1, 0))
    assert played.idle_fraction == 0
    assert played.staleness[4:] == [3] * (len(played.staleness) - 4)
    assert set(play(4, 0, durations(1, 0)).staleness) == {0}


def test_a_larger_bound_means_less_waiting_and_more_staleness() -> None:
    runs = [play(4, bound, durations(1, 3.0), 400) for bound in (0, 1, 4, math.inf)]
    idle = [run.idle_fraction for run in runs]
    assert idle == sorted(idle, reverse=True)
    assert idle[0] > 0.2 > idle[-1] == 0
    slow = [play(4, bound, durations(8, 0), 400) for bound in (1, math.inf)]
    assert max(slow[1].staleness) > 3 * max(slow[0].staleness)


def test_the_text_has_the_numbers_of_the_picture() -> None:
    view = staleness(workers=2, slowest=4, bound=0)
    first, *lines = view.text.splitlines()
    settings = "sequential (bound 0), worker 0 4x slower"
    assert first.startswith(f"{settings}: 20 pushes in 40 units of time, workers wait 38% of it")
    assert view.picture.title == first
    assert lines == [
        "worker 0: 10 tasks",
        "worker 1: 10 tasks",
        "staleness: pushes",
        "        0: 20",
    ]


def test_the_explorer_draws_every_extreme() -> None:
    explorer = staleness_explorer()
    assert "bounded delay (bound 2), worker 0 4x slower" in explorer.text
    assert ", equal workers, tasks up to 50% longer: " in staleness(4, 1, 2, 0.5).text
    for workers in (1, 8):
        for bound in (0, math.inf):
            assert boxes(staleness(workers, 8, bound, 3.0), "computes")
