"""What the exercises gpipe_schedule and one_f_one_b_schedule share."""

import random

from course_lib.checks.exercise import Case, Finding
from course_lib.observe.timeline import Timeline
from course_lib.text import counted

from ._tables import (
    BACKWARD,
    FORWARD,
    Table,
    shown,
    some_sizes,
    table_cases,
)


def cases(rng: random.Random) -> list[Case]:
    return table_cases([(3, 4), (2, 3), (1, 3), (4, 2), (2, 1), *some_sizes(rng, (3, 4, 5))])


def own_stages(table: Table) -> Finding | None:
    for rank, row in enumerate(table):
        for op in row:
            if op.stage != rank:
                return Finding(
                    f"rank {rank} runs {op}, but holds only stage {rank}",
                    rank,
                    expected=f"operations of stage {rank}",
                    got=str(op),
                )
    return None


def whole_backwards(table: Table) -> Finding | None:
    """No halves in a schedule that has none."""
    for rank, row in enumerate(table):
        for op in row:
            if op.kind not in ("F", "B"):
                return Finding(
                    f"rank {rank} runs {op}, a half of a backward: in this schedule each is whole",
                    rank,
                    expected="the kinds F and B",
                    got=str(op),
                )
    return None


def time(case: Case, table: Table, timeline: Timeline) -> Finding | None:
    p, m = case.data["size"]
    best = (m + p - 1) * (FORWARD + BACKWARD)
    if timeline.makespan == best:
        return None
    likely = "it can run, but it is idle more than it has to be"
    if timeline.makespan == m * p * (FORWARD + BACKWARD):
        likely = (
            "it can run, but one microbatch after the other: at any moment a single rank works. "
            "Let the next forward start before the last backward is back"
        )
    else:
        for stage, row in enumerate(table):
            forwards = next(n for n, op in enumerate(row) if op.kind != "F")
            if forwards != min(m, p - stage):
                likely += (
                    f": stage {stage} runs {counted(forwards, 'forward')} before its "
                    f"first backward. The first gradient is back after {min(m, p - stage)}"
                )
                break
    return Finding(
        likely,
        expected=f"(m + p - 1) (1 + 2) = {best} steps, a backward taking twice a forward",
        got=f"{timeline.makespan:g} steps\n{shown(table)}",
    )
