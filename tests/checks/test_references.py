"""References of the checks agree with the techniques and with the simulator, made independently."""

from course_lib.checks.exercises.nb01_parameter_server import released, ring_owners
from course_lib.checks.exercises.nb05_pipeline_parallel import stuck_ranks
from course_lib.simulate.blocking_sends import Hang, simulate_blocking
from course_lib.techniques.parameter_server import Progress
from course_lib.techniques.schedules import gpipe, interleaved, one_f_one_b


def test_the_reference_for_released_agrees_with_the_technique():
    for finished in ([0, 0], [3, 1, 2], [5, 0, 5, 1]):
        for bound in (0, 1, 2, 9):
            progress = Progress(range(len(finished)), bound)
            for worker, count in enumerate(finished):
                for _ in range(count):
                    progress.finish(worker)
            waiting = list(range(len(finished)))
            may = [worker for worker in waiting if progress.may_start(worker)]
            assert released.reference(finished, waiting, bound) == may


def test_adding_a_server_to_the_reference_ring_moves_its_share():
    keys = [str(number) for number in range(3000)]
    few, many = (
        ring_owners.reference({"keys": keys, "servers": n, "how": "hashed"}, 128) for n in (4, 5)
    )
    moved = [new for old, new in zip(few, many, strict=True) if old != new]
    assert set(moved) == {4}
    assert 0.1 < len(moved) / len(keys) < 0.3


def test_the_reference_for_stuck_ranks_agrees_with_the_simulator():
    plain = [make(p, m) for make in (gpipe, one_f_one_b) for p in (1, 2, 3, 4) for m in (1, 2, 5)]
    for schedule in [*plain, interleaved(2, 4, 1)]:
        try:
            simulate_blocking(schedule)
            hangs = False
        except Hang:
            hangs = True
        assert bool(stuck_ranks.reference(stuck_ranks._pipeline(schedule))) == hangs
