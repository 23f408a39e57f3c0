"""Interleaved 1F1B as a table: less bubble by smaller stages.

interleaved_schedule(p, m, v) -> rows; rank r holds the stages r, r + p, ..., r + (v-1) p
    m is a multiple of p. It takes (m v + p - 1)(forward + backward) of time, in times of a small
    stage, and rank r holds at most min(m v, (v-1) p + 2 (p-r-1) + 1) activations of small stages.
"""

import random

from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from ._clever_tables import too_much
from ._tables import (
    BACKWARD,
    FORWARD,
    Table,
    build_table,
    read_own,
    run_table,
    shown,
    table_cases,
)


def _interleaved_cases(rng: random.Random) -> list[Case]:
    sizes = [(2, 4, 2), (2, 2, 2), (3, 6, 1), (1, 3, 2), (4, 4, 2)]
    drawn = [(p, p * rng.randint(2, 3), rng.randint(2, 4)) for p in (2, 3, 4)]
    return table_cases(sizes + drawn)


def _judge_interleaved(case: Case, observation: Observation) -> Finding | None:
    table = read_own(case, observation)
    if isinstance(table, Finding):
        return table
    p, m, v = case.data["size"]
    timeline = run_table(table, m)
    if isinstance(timeline, Finding):
        # Where the stages lie says more than who waits for whom.
        return (_other_stages(table, p, v) if _neighbours(table, v) else None) or timeline
    if finding := _other_stages(table, p, v):
        return finding
    best = (m * v + p - 1) * (FORWARD + BACKWARD)
    if timeline.makespan > best:
        return Finding(
            "it can run, but is idle more than it has to be: microbatches go in groups of p "
            "through the first stage of a rank, then through its second, before the next group",
            expected=f"(m v + p - 1) (1 + 2) = {best} steps of a small stage",
            got=f"{timeline.makespan:g} steps\n{shown(table)}",
        )
    most = [min(m * v, (v - 1) * p + 2 * (p - r - 1) + 1) for r in range(p)]
    held = list(timeline.peak_held_by_rank())
    return too_much(most, held, "min(m v, (v-1) p + 2 (p-r-1) + 1)", table)


def _stages(table: Table) -> list[list[int]]:
    return [sorted({op.stage for op in row}) for row in table]


def _neighbours(table: Table, v: int) -> bool:
    """Whether rank r holds the stages r v to r v + v - 1."""
    return _stages(table) == [list(range(r * v, r * v + v)) for r in range(len(table))]


def _other_stages(table: Table, p: int, v: int) -> Finding | None:
    for rank, got in enumerate(_stages(table)):
        wanted = list(range(rank, p * v, p))
        if got != wanted:
            likely = f"rank {rank} holds other stages than those with stage % p == {rank}"
            if _neighbours(table, v):
                likely = (
                    "neighbouring stages are on one rank: that is a plain pipeline of larger "
                    "stages. Deal them out in turn, so that every rank gets one early on"
                )
            return Finding(likely, rank, expected=f"stages {wanted}", got=f"stages {got}")
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(p, m, v)",
    cases=_interleaved_cases,
    on_rank=build_table,
    judge=_judge_interleaved,
    hints=(
        """
        First write the order of all m v forwards of one rank, as one list, and the same for its
        backwards. Then it is 1F1B again: some forwards to warm up, then one of each in turn.
        """,
        """
        Forwards go by groups of p microbatches: a group through the rank's first stage, the same
        group through its second, ... Backwards likewise, with the stages from last to first. The
        warm-up is 2 (p - r - 1) + (v - 1) p forwards, but never more than m v.
        """,
        """
        forwards = [Op("F", r + c * p, i) for start in range(0, m, p) for c in range(v) for i in
        range(start, start + p)]; backwards with "B" and reversed(range(v)). The row is
        forwards[:w], then forwards[w + k] and backwards[k] in turn, then what is left of
        backwards.
        """,
    ),
    passed="(m v + p - 1) steps of a small stage: the bubble is v times smaller",
    contract=Contract(
        takes="p, v from 1 on and m a multiple of p",
        gives="the result has one row per rank, of (kind, stage, microbatch)",
        allowed=frozenset(),
        holds="rank r has min(m v, (v-1) p + 2 (p-r-1) + 1) in flight at most",
    ),
    points=2,
)
