"""ZB-H1 as a table: less bubble by a split backward.

zero_bubble_schedule(p, m) -> rows; the backward of stage s is I, then (any time later) W
    With F = I = W = 1 it takes 3 m + p - 1 (for m < p: 2 (m + p - 1) + 1), and a stage holds at
    most min(m, p) microbatches between F and W.
"""

import itertools
import random
from collections.abc import Sequence

from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from ._clever_tables import too_much
from ._tables import (
    FORWARD,
    build_table,
    read_and_run,
    shown,
    some_sizes,
    table_cases,
)


def _zero_bubble_cases(rng: random.Random) -> list[Case]:
    return table_cases([(3, 5), (2, 3), (1, 2), (4, 2), *some_sizes(rng, (3, 4, 5))])


def _judge_zero_bubble(case: Case, observation: Observation) -> Finding | None:
    kinds = {op[0] for row in _rows(observation) for op in row}
    if "B" in kinds:
        return Finding(
            "there is a B in your table: split it, I for the gradient of the input and W for that "
            "of the weights",
            expected="the kinds F, I and W",
            got=f"the kinds {', '.join(sorted(kinds))}",
        )
    ran = read_and_run(case, observation, weight=FORWARD)
    if isinstance(ran, Finding):
        return ran
    table, timeline = ran
    p, m = case.data["size"]
    best = 3 * m + p - 1 if m >= p else 2 * (m + p - 1) + 1
    if timeline.makespan > best:
        likely = "it can run, but is idle more than it has to be"
        if all(_follows(row) for row in table):
            likely = (
                "every W follows its I at once, which is a B again: the stage before only waits "
                "for I, so do W later, where the stage would stand idle"
            )
        elif all(row[-m].kind == "W" for row in table):
            likely += (
                ": all W's are left to the end. In the cool-down a stage waits for gradients, and "
                "a W fits between two I's there"
            )
        elif early := [s for s, row in enumerate(table) if _put_off(row) < min(s + 1, m)]:
            likely += (
                f": rank {early[0]} runs its W's too early, before its I's have gone ahead. It "
                f"runs one if more than {early[0]} wait, that of the I it has just run included"
            )
        return Finding(
            likely,
            expected=f"{best} steps, with F = I = W = 1",
            got=f"{timeline.makespan:g} steps\n{shown(table)}",
        )
    held = list(timeline.peak_held(activation=1, weight=1))
    return too_much([min(m, p)] * p, held, "min(m, p) between F and W", table)


def _rows(observation: Observation) -> Sequence[Sequence]:
    """The rows of a table, as far as the value is one."""
    table = observation.values[0]["table"]
    rows = [row for row in table if isinstance(row, list)] if isinstance(table, list) else []
    return [[op for op in row if isinstance(op, list) and op] for row in rows]


def _follows(row: Sequence) -> bool:
    pairs = itertools.pairwise(row)
    return all(b.kind == "W" and b[1:] == a[1:] for a, b in pairs if a.kind == "I")


def _put_off(row: Sequence) -> int:
    """The most W's that wait at once."""
    waiting = itertools.accumulate((op.kind == "I") - (op.kind == "W") for op in row)
    return max(waiting, default=0)


EXERCISE = Exercise(
    module=__name__,
    signature="(p, m)",
    cases=_zero_bubble_cases,
    on_rank=build_table,
    judge=_judge_zero_bubble,
    hints=(
        """
        Begin with your 1F1B and write I for every B. That is the skeleton; the W's go into it.
        Where does 1F1B stand idle, and how many W's has stage s put off by then?
        """,
        """
        Stage s puts off s of its W's: after an I it runs a W only once more than s are waiting,
        that of this I included. What remains is done at the end.
        """,
        """
        Keep two counters, i for I and w for W. After the I of microbatch i: if i + 1 - w > s, run
        W of microbatch w and count. After the last I run W for w ... m-1.
        """,
    ),
    passed="a third of 1F1B's bubble, with no more than p microbatches held",
    contract=Contract(
        takes="p and m from 1 on, even m < p",
        gives="the result has one row per rank, of (kind, stage, microbatch)",
        allowed=frozenset(),
        holds="every stage has min(m, p) microbatches between F and W at most",
    ),
    points=2,
)
