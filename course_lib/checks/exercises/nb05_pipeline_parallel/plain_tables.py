"""GPipe and 1F1B as tables.

gpipe_schedule(p, m), one_f_one_b_schedule(p, m) -> one row a rank of (kind, stage, microbatch)
    Stage s is on rank s. Both take (m + p - 1) (forward + backward) of time. GPipe runs all
    forwards of a stage before its backwards; 1F1B never holds more than min(m, p - s)
    microbatches on stage s.
"""

import random

from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.observe.timeline import Timeline

from .tables import (
    BACKWARD,
    FORWARD,
    Table,
    build_table,
    read_and_run,
    shown,
    some_sizes,
    table_cases,
)


def _cases(rng: random.Random) -> list[Case]:
    return table_cases([(3, 4), (2, 3), (1, 3), (4, 2), (2, 1), *some_sizes(rng, (3, 4, 5))])


def _judge_gpipe(case: Case, observation: Observation) -> Finding | None:
    ran = read_and_run(case, observation)
    if isinstance(ran, Finding):
        return ran
    table, timeline = ran
    _, m = case.data["size"]
    if finding := _own_stages(table):
        return finding
    for rank, row in enumerate(table):
        first = next(n for n, op in enumerate(row) if op.kind != "F")
        if first < m:
            late = next(op for op in row[first:] if op.kind == "F")
            return Finding(
                f"it can run, but it is not GPipe's: rank {rank} runs {row[first]} before {late}, "
                "and GPipe finishes all forwards before it begins with backwards",
                rank,
                got=shown(table),
            )
    return _time(case, table, timeline)


def _judge_1f1b(case: Case, observation: Observation) -> Finding | None:
    ran = read_and_run(case, observation)
    if isinstance(ran, Finding):
        return ran
    table, timeline = ran
    p, m = case.data["size"]
    return (
        _own_stages(table)
        or _time(case, table, timeline)
        or _in_flight(table, timeline, [min(m, p - s) for s in range(p)], m)
    )


def _own_stages(table: Table) -> Finding | None:
    for rank, row in enumerate(table):
        for op in row:
            if op.stage != rank:
                return Finding(
                    f"rank {rank} runs {op}, and holds stage {rank} alone",
                    rank,
                    expected=f"operations of stage {rank}",
                    got=str(op),
                )
    return None


def _time(case: Case, table: Table, timeline: Timeline) -> Finding | None:
    p, m = case.data["size"]
    best = (m + p - 1) * (FORWARD + BACKWARD)
    if timeline.makespan == best:
        return None
    likely = "it can run, but it stands idle more than it has to"
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
                    f": stage {stage} runs {forwards} forward{'s' * (forwards != 1)} before its "
                    f"first backward. The first gradient is back after {min(m, p - stage)}"
                )
                break
    return Finding(
        likely,
        expected=f"(m + p - 1) (1 + 2) = {best} steps, a backward taking twice a forward",
        got=f"{timeline.makespan:g} steps\n{shown(table)}",
    )


def _in_flight(table: Table, timeline: Timeline, most: list[int], m: int) -> Finding | None:
    held = list(timeline.peak_in_flight)
    for stage, (got, allowed) in enumerate(zip(held, most, strict=True)):
        if got > allowed:
            if held == [m] * len(most):
                likely = (
                    "as fast as it should be, but every stage holds all microbatches at once: this "
                    "is GPipe's order. 1F1B runs a backward as soon as there is one"
                )
            else:
                likely = (
                    f"as fast as it should be, but stage {stage} holds more microbatches than it "
                    "needs: count the stages behind it, each of which needs one to work on"
                )
            return Finding(
                likely,
                stage,
                expected=f"at most min(m, p - s) = {most} in flight on the stages",
                got=f"{held}\n{shown(table)}",
            )
    return None


# ---------------------------------------------------------------------------------------------

GPIPE_SCHEDULE = Exercise(
    name="gpipe_schedule",
    signature="(p, m)",
    notebook="05_pipeline_parallel",
    cases=_cases,
    on_rank=build_table,
    judge=_judge_gpipe,
    hints=(
        """
        Every rank does the same: its forwards for microbatches 0 to m-1, then its backwards. Only
        the number of the stage differs from row to row.
        """,
        """
        Two loops over range(m) make one row, and a loop over range(p) makes the table. The stage
        of rank s is s. Waiting for a neighbour is not written down: it follows from the order.
        """,
        """
        row = [Op("F", s, i) for i in range(m)], then the same with "B" is appended. Collect the
        rows of s = 0 ... p-1 in a list and return it.
        """,
    ),
    passed="(m + p - 1) steps forward and back, all forwards first",
    allowed=frozenset(),
)

ONE_F_ONE_B_SCHEDULE = Exercise(
    name="one_f_one_b_schedule",
    signature="(p, m)",
    notebook="05_pipeline_parallel",
    cases=_cases,
    on_rank=build_table,
    judge=_judge_1f1b,
    hints=(
        """
        Three parts: warm-up (forwards only), steady state (one forward, one backward, in turn),
        cool-down (the backwards that are left). What differs between stages is the length of the
        warm-up. How long is it on the last stage?
        """,
        """
        The last stage needs no warm-up: its backward can follow its forward at once. Each stage
        before it starts one forward earlier: p - s - 1 of them on stage s. There may be fewer
        microbatches than that.
        """,
        """
        warm_up = min(p - s - 1, m). First F of microbatches 0 ... warm_up-1. Then for i in
        range(m - warm_up): F of warm_up + i, B of i. At the end B of the rest, from m - warm_up
        to m - 1.
        """,
    ),
    passed="as fast as GPipe, with min(m, p - s) microbatches in flight on stage s",
    allowed=frozenset(),
    points=2,
)
