"""GPipe as a table.

gpipe_schedule(p, m) -> one row per rank of (kind, stage, microbatch)
    Stage s is on rank s. It takes (m + p - 1) (forward + backward) of time, and runs all forwards
    of a stage before its backwards.
"""

from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from ._plain_tables import cases, own_stages, time, whole_backwards
from ._tables import (
    Table,
    build_table,
    read_and_run,
    shown,
)


def _judge_gpipe(case: Case, observation: Observation) -> Finding | None:
    ran = read_and_run(case, observation)
    if isinstance(ran, Finding):
        return ran
    table, timeline = ran
    _, m = case.data["size"]
    if finding := own_stages(table) or whole_backwards(table):
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
    return _other_orders(table) or time(case, table, timeline)


def _other_orders(table: Table) -> Finding | None:
    """Stages that go through the microbatches in another order than the first, and wait for it."""
    for kind, name in (("F", "forwards"), ("B", "backwards")):
        orders = [[op.microbatch for op in row if op.kind == kind] for row in table]
        for rank, order in enumerate(orders):
            if order != orders[0]:
                return Finding(
                    f"it can run, but rank {rank} has its {name} in another order than rank 0, so "
                    "that one waits for what the other does last",
                    rank,
                    expected=f"{name} of {orders[0]}",
                    got=f"{order}\n{shown(table)}",
                )
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(p, m)",
    cases=cases,
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
    contract=Contract(
        takes="p and m from 1 on",
        gives="the result has one row per rank, of (kind, stage, microbatch), lists or tuples",
        allowed=frozenset(),
    ),
)
