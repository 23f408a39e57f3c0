"""What exercises about schedules share: their cases, reading a table, and whether it can run."""

import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

from course_lib.checks.call_answer import Other, kind_of, plain
from course_lib.checks.exercise import Case, Finding, Observation
from course_lib.checks.sandbox.names import technique_file
from course_lib.observe.timeline import Timeline
from course_lib.simulate.pipeline import Op, simulate

FORWARD, BACKWARD = 1, 2  # times in the simulations; W is half of a backward
_MOST_SHOWN = 8  # ranks
_WIDEST = 14  # operations of a rank

Table = list[list[Op]]


def table_cases(sizes: Sequence[tuple[int, ...]]) -> list[Case]:
    """One case for each (p, m) or (p, m, v)."""
    return [Case(1, _label(*size), {"size": size}) for size in sizes]


def some_sizes(rng: random.Random, ps: Sequence[int]) -> list[tuple[int, int]]:
    """For each p an m below p, one near it and one well above."""
    ms = [
        (rng.randint(1, max(1, p - 1)), rng.randint(p, p + 2), rng.randint(2 * p, 12)) for p in ps
    ]
    return [(p, m) for p, of_p in zip(ps, ms, strict=True) for m in of_p]


def _label(p: int, m: int, v: int = 1) -> str:
    return f"p = {p}, m = {m}" + (f", v = {v}" if v > 1 else "")


# ---------------------------------------------------------------------------------------------


def build_table(answer: Callable, case: Case) -> dict[str, Any]:
    """On a rank: the answer's table as plain values, and the course's function that it called."""
    value, borrowed = by_itself(answer, *case.data["size"])
    return {"table": plain_rows(value), "borrowed": borrowed}


def by_itself(answer: Callable, *args: Any) -> tuple[Any, str]:
    """What `answer` returns, and the name of a schedule of the course that it called, or ""."""
    borrowed = ""

    def watch(frame: Any, event: str, _: Any) -> None:
        nonlocal borrowed
        if event == "call" and technique_file(frame.f_code.co_filename):
            borrowed = borrowed or frame.f_code.co_name

    sys.setprofile(watch)
    try:
        return answer(*args), borrowed
    finally:
        sys.setprofile(None)


def plain_rows(value: Any) -> Any:
    """Nested lists and tuples (an `Op` is one) as lists; the rest as `plain` has it."""
    if isinstance(value, list | tuple):
        return [plain_rows(item) for item in value]
    return plain(value)


def borrowed(name: str) -> Finding | None:
    if name:
        return Finding(
            f"your function calls {name} of course_lib.techniques.schedules, where the course "
            "keeps its own answer: write it yourself here, import theirs afterwards"
        )
    return None


def read_table(value: Any, ranks: int) -> Table | Finding:
    """The table in `value`, or what keeps it from being one."""
    expected = f"a list of {ranks} rows, one per rank, of operations (kind, stage, microbatch)"
    if not isinstance(value, list):
        kind = kind_of(value)
        return Finding(f"this is {kind}, not a table", expected=expected, got=kind)
    if value and all(map(_is_op, value)):
        return Finding(
            "this is one list of operations: make one list for every rank",
            expected=expected,
            got=f"a list of {len(value)} operations",
        )
    if len(value) != ranks:
        return Finding(
            f"there are {ranks} ranks, and your table has {len(value)} rows", expected=expected
        )
    for rank, row in enumerate(value):
        if not isinstance(row, list):
            return Finding(f"the row of rank {rank} is {kind_of(row)}", expected=expected)
        for index, op in enumerate(row):
            if not _is_op(op):
                return Finding(
                    f"position {index} of rank {rank} is not an operation",
                    expected='such as Op("F", 0, 3): kind, stage, microbatch',
                    got=f"{op.kind if isinstance(op, Other) else op!r}",
                )
    return [[Op(*op) for op in row] for row in value]


def _is_op(value: Any) -> bool:
    return isinstance(value, list) and list(map(type, value)) == [str, int, int]


def run_table(table: Table, microbatches: int, weight: float | None = None) -> Timeline | Finding:
    """Its timeline; or, if it cannot run, why."""
    most = max((op.microbatch for row in table for op in row), default=-1)
    if most >= microbatches:
        rank, index = next(
            (r, n) for r, row in enumerate(table) for n, op in enumerate(row) if op[2] == most
        )
        return Finding(
            f"there is no microbatch {most}: {microbatches} of them count from 0 to "
            f"{microbatches - 1}",
            expected=f"microbatches 0 to {microbatches - 1}",
            got=f"{table[rank][index]} at position {index} of rank {rank}",
        )
    try:
        timeline = simulate(table, FORWARD, BACKWARD, weight)
    except ValueError as problem:
        first, *grid = str(problem).split("\n")
        return Finding(f"this schedule cannot run: {first}", got="\n".join(grid))
    done = {op.microbatch for op in table[0]}
    if len(done) < microbatches:
        missing = min(set(range(microbatches)) - done)
        return Finding(
            f"microbatch {missing} never goes through: the batch has {microbatches}",
            got=shown(table),
        )
    return timeline


def read_own(case: Case, observation: Observation) -> Table | Finding:
    """The learner's own table, well formed; whether it can run is another question."""
    seen = observation.values[0]
    return borrowed(seen["borrowed"]) or read_table(seen["table"], case.data["size"][0])


def read_and_run(
    case: Case, observation: Observation, weight: float | None = None
) -> tuple[Table, Timeline] | Finding:
    """What every table is expected first: the learner's own, well formed, and able to run."""
    table = read_own(case, observation)
    if isinstance(table, Finding):
        return table
    m = case.data["size"][1]
    timeline = run_table(table, m, weight)
    return timeline if isinstance(timeline, Finding) else (table, timeline)


def shown(table: Sequence[Sequence[Op]]) -> str:
    """The table as text, cut where a message would become too long."""
    lines = []
    for rank, row in enumerate(table[:_MOST_SHOWN]):
        short = all(op.stage == r for r, each in enumerate(table) for op in each)
        cells = [f"{op.kind}{op.microbatch}" if short else str(op) for op in row[:_WIDEST]]
        lines.append(f"rank {rank} | " + " ".join(cells) + (" ..." if len(row) > _WIDEST else ""))
    return "\n".join([*lines, "..."] if len(table) > _MOST_SHOWN else lines)
