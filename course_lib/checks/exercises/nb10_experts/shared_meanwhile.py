"""Both all-to-alls of a layer of experts, hidden behind the experts that every token goes to.

shared_meanwhile(rows, sent, received, run, x, shared) -> (returned, own)
    rows (sum(sent), C), sorted by rank; sent and received: n whole numbers. run: this rank's
    experts, from rows that came in to outputs in the same order. shared: two functions of the
    rank's tokens x (T, C). returned: the outputs of `rows`, in their order; own: shared[0](x) +
    shared[1](x). The first is computed while rows travel there, the second while they travel back.
"""

import contextlib
import random
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.profiler import record_function

from course_lib.checks import compare_tensors
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.case_inputs import normal
from course_lib.checks.contract import Contract, Waits
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.profiler_labels import meanwhile
from course_lib.checks.rank_inputs import by_rank
from course_lib.observe import CommEvent
from course_lib.text import counted

_WIDTH = 3
_NAMES = ("shared[0]", "run", "shared[1]")


def _cases(rng: random.Random) -> list[Case]:
    drawn = [[rng.randint(0, 3) for _ in range(3)] for _ in range(3)]
    drawn[0][1], drawn[2][0] = 4, 2
    return [_case(rng, table) for table in ([[1, 3], [2, 1]], drawn, [[2]])]


def _case(rng: random.Random, table: list[list[int]]) -> Case:
    n = len(table)
    data: dict[str, Any] = {"table": table}
    data["rows"] = [normal(rng, (sum(counts), _WIDTH))[0] for counts in table]
    data["x"] = [normal(rng, (2, _WIDTH))[0] for _ in range(n)]
    data["factors"] = normal(rng, *[(_WIDTH,)] * 3)
    label = f"rows over {counted(n, 'rank')}: {table}"
    return Case(n, label, data)


class _Timed:
    """A function that multiplies, and notes from when to when it computed.

    label: around each call.
    """

    def __init__(self, factors: torch.Tensor, label: record_function | None = None):
        self.factors = factors
        self.label = label or contextlib.nullcontext()
        self.calls: list[tuple[float, float]] = []

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        start = time.monotonic()
        with self.label:
            result = torch.sin(x) * self.factors
        self.calls.append((start, time.monotonic()))
        return result


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    rank, data = dist.get_rank(), case.data
    labels = [
        meanwhile("shared[0] runs", "all_to_all 1"),
        None,
        meanwhile("shared[1] runs", "all_to_all 2"),
    ]
    functions = [_Timed(*each) for each in zip(data["factors"], labels, strict=True)]
    first, run, second = functions
    sent, received = data["table"][rank], [row[rank] for row in data["table"]]
    answered = answer(
        data["rows"][rank].clone(), sent, received, run, data["x"][rank].clone(), [first, second]
    )
    return {"answered": plain(answered), "calls": [each.calls for each in functions]}


def _judge(case: Case, observation: Observation) -> Finding | None:
    first, _, second = case.data["factors"]
    for rank, seen in enumerate(observation.values):
        answered, x = seen["answered"], torch.sin(case.data["x"][rank])
        if not isinstance(answered, tuple | list) or len(answered) != 2:
            return Finding("two tensors are expected", rank, got=kind_of(answered))
        looks = {
            "made of what came in, and outputs go back to where the rows are from": _outputs_here(
                case, rank
            ),
            "the rows themselves, without experts": case.data["rows"][rank],
        }
        want = _outputs(case, rank)
        if finding := compare_tensors.titled(
            "returned", compare_tensors.computed(answered[0], want, rank, looks)
        ):
            return finding
        looks = {"only the first one's part": x * first, "only the second one's part": x * second}
        if finding := compare_tensors.titled(
            "own", compare_tensors.computed(answered[1], x * (first + second), rank, looks)
        ):
            return finding
    for rank, seen in enumerate(observation.values):
        if finding := _order(case, observation, seen["calls"], rank):
            return finding
    return None


def _outputs(case: Case, rank: int) -> torch.Tensor:
    return torch.sin(case.data["rows"][rank]) * case.data["factors"][1]


def _outputs_here(case: Case, rank: int) -> torch.Tensor:
    table = case.data["table"]
    return torch.cat([_outputs(case, r).split(table[r])[rank] for r in range(case.world_size)])


def _order(
    case: Case, observation: Observation, calls: list[list[tuple[float, float]]], rank: int
) -> Finding | None:
    for name, found in zip(_NAMES, calls, strict=True):
        if len(found) != 1:
            return Finding(
                f"the numbers are right, but {name} should be called once",
                rank,
                expected="1 call",
                got=f"{len(found)}",
            )
    events = observation.trace.of(rank)
    if case.world_size == 1:
        return None
    if len(events) != 2:
        return Finding(
            "the numbers are right, but two all-to-alls are enough: the sizes are known",
            rank,
            expected="2 all-to-alls",
            got=f"{len(events)}",
        )
    _, (run,), _ = calls
    return _run_between(events, run, rank)


def _run_between(events: list[CommEvent], run: tuple[float, float], rank: int) -> Finding | None:
    there, back = events
    if there.waited is not None and there.waited <= run[0] and run[1] <= back.issued:
        return None
    return Finding(
        "the numbers are right, but `run` belongs between the two exchanges: after the wait for "
        "the first, before the second begins",
        rank,
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(rows, sent, received, run, x, shared)",
    cases=_cases,
    on_rank=_on_rank,
    own={"rows": by_rank, "x": by_rank},
    judge=_judge,
    hints=(
        """
        Write down the five steps in the order in which they depend on each other: there, run, back;
        and two more that depend on nothing. Where is the rank idle, waiting?
        """,
        """
        dist.all_to_all_single(..., async_op=True) returns a handle at once. Until handle.wait() the
        rows travel while you compute. The tensor that is sent must not change meanwhile.
        """,
        """
        start the exchange of rows into rows.new_empty(sum(received), C); a = shared[0](x); wait;
        outputs = run(arrived); start the exchange of outputs, with received and sent in each
        other's places; b = shared[1](x); wait; return returned, a + b.
        """,
    ),
    passed="each exchange begins before a shared expert, and is waited for after it",
    contract=Contract(
        takes="rows sorted by rank, any sizes; no gradients are needed here",
        allowed=frozenset({"all_to_all"}),
        sends="there are two: one of the rows on the way there, one of their outputs on the way "
        "back",
        waits=(
            Waits(
                op="all_to_all",
                during="`shared[0]` runs while rows travel there, `shared[1]` while outputs travel "
                "back",
            ),
        ),
    ),
    points=2,
)
