"""1F1B as a table.

one_f_one_b_schedule(p, m) -> one row per rank of (kind, stage, microbatch)
    Stage s is on rank s. It takes (m + p - 1) (forward + backward) of time, and never holds more
    than min(m, p - s) microbatches on stage s.
"""

from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.observe.timeline import Timeline

from ._plain_tables import cases, own_stages, time, whole_backwards
from ._tables import (
    Table,
    build_table,
    read_and_run,
    shown,
)


def _judge_1f1b(case: Case, observation: Observation) -> Finding | None:
    ran = read_and_run(case, observation)
    if isinstance(ran, Finding):
        return ran
    table, timeline = ran
    p, m = case.data["size"]
    return (
        own_stages(table)
        or whole_backwards(table)
        or time(case, table, timeline)
        or _in_flight(table, timeline, [min(m, p - s) for s in range(p)], m)
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


EXERCISE = Exercise(
    module=__name__,
    signature="(p, m)",
    cases=cases,
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
    passed="as fast as can be, and no stage holds more microbatches in flight than it needs",
    contract=Contract(
        takes="p and m from 1 on, even m < p",
        gives="the result has one row per rank, of (kind, stage, microbatch)",
        allowed=frozenset(),
        holds="each stage runs its first backward as soon as it can, and holds no more "
        "microbatches in flight than that takes",
    ),
    points=2,
)
