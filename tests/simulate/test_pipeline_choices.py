"""The ways to run a job as a pipeline: all that divide, and what each of them takes and holds."""

import pytest

from course_lib.checks.exercises.nb05_pipeline_parallel import choose_schedule
from course_lib.simulate.pipeline_choices import _TABLES, JOBS, Way, seconds, transformer_job, ways

SMALL = transformer_job(12, 64, machines=4, memory=1e9, bandwidth=1e9, batch=8)


def test_all_ways_divide_and_none_is_missing():
    found = ways(SMALL)
    assert len(set(found)) == len(found)
    assert Way("1f1b", 4, 8, 1) in found
    assert Way("interleaved", 4, 4, 3) in found
    assert Way("interleaved", 2, 2, 6) in found
    assert Way("gpipe", 3, 1, 1) not in found  # 3 does not divide 4 machines
    assert Way("interleaved", 4, 2, 3) not in found  # m is not a multiple of p
    assert Way("1f1b", 2, 8, 1) not in found  # a copy has 4 sequences
    for way in found:
        assert SMALL.layers % (way.p * way.v) == 0
        assert SMALL.batch * way.p % (SMALL.machines * way.m) == 0


def test_without_messages_a_step_is_the_formula_of_the_bubble():
    job = transformer_job(12, 64, machines=4, memory=1e9, bandwidth=1e30, batch=8)
    for way in ways(job):
        sequences = job.batch * way.p // job.machines // way.m
        stage = 3 * job.layers / way.p / way.v * (job.launch + sequences * job.forward)
        messages = 4 * (way.p * way.v + way.m * way.v) * job.latency  # more than wait for any
        formula = (way.m * way.v + way.p - 1) * stage
        assert formula * (1 - 1e-9) <= seconds(job, way) <= formula + messages, way


def test_the_check_counts_in_flight_what_the_tables_hold():
    for schedule, p, m, v in ways(SMALL):
        table = _TABLES[schedule](p, m, v)
        most = held = 0
        for op in table[0]:
            held += {"F": 1, "B": -1}[op.kind]
            most = max(most, held)
        assert choose_schedule._in_flight(schedule, p, m, v) == most


@pytest.mark.parametrize(
    ("job", "schedule", "p"),
    [
        ("39B, InfiniBand", "interleaved", 4),  # the network allows it
        ("20B, Ethernet", "gpipe", 2),  # nothing waits for a round trip, and there is room
        ("GPT-3, Ethernet", "1f1b", 16),  # there is no room
        ("7B, InfiniBand", None, 1),  # fits on a machine: no pipeline
    ],
)
def test_each_job_has_another_best_way(job, schedule, p):
    case = choose_schedule._case(job, JOBS[job])
    best = min(choose_schedule._DECISION.fitting(case), key=lambda way: case.data["seconds"][way])
    assert best[1] == p
    assert schedule in (None, best[0])
