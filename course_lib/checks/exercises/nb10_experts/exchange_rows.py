"""All-to-all with parts of any size: exchange the counts first, then the rows.

exchange_rows(rows, counts) -> (received, received_counts)
    rows (N, C): the first counts[0] are for rank 0, the next counts[1] for rank 1, and so on;
    counts is int64, of n numbers. received: the rows that come from rank 0 first, then rank 1's,
    and so on; received_counts int64: how many came from each.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks import compare_tensors, reference, traffic_limits
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import by_rank
from course_lib.text import counted


def _cases(rng: random.Random) -> list[Case]:
    drawn = [[rng.randint(0, 3) for _ in range(3)] for _ in range(3)]
    drawn[1][2] = 5
    tables = [
        ([[1, 2], [3, 1]], torch.float32, 1),
        (drawn, torch.int64, 2),
        ([[0, 0, 4], [0, 0, 0], [0, 0, rng.randint(1, 3)]], torch.float64, 3),
        ([[rng.randint(2, 5)]], torch.float32, 2),
    ]
    return [_case(table, dtype, width) for table, dtype, width in tables]


def _case(table: list[list[int]], dtype: torch.dtype, width: int) -> Case:
    """table[r][s] rows go from rank r to rank s; each says from where and to where it goes."""
    inputs = [
        torch.tensor(
            [
                [1000 * source + 100 * target + 10 * row + column for column in range(width)]
                for target, count in enumerate(counts)
                for row in range(1, count + 1)
            ],
            dtype=dtype,
        ).view(-1, width)
        for source, counts in enumerate(table)
    ]
    label = f"rows of {width} over {counted(len(table), 'rank')}: {table}"
    return Case(
        len(table),
        label,
        {"inputs": inputs, "table": table},
        "how many rows a rank receives is known to the others only: an all-to-all of the counts "
        "comes first, and says how large the tensor for the rows must be",
    )


def _on_rank(answer: Callable, case: Case) -> Any:
    rank = dist.get_rank()
    counts = torch.tensor(case.data["table"][rank])
    return plain(answer(case.data["inputs"][rank].clone(), counts))


def _judge(case: Case, observation: Observation) -> Finding | None:
    table, inputs = case.data["table"], case.data["inputs"]
    n = case.world_size
    for rank, answered in enumerate(observation.values):
        if not isinstance(answered, tuple | list) or len(answered) != 2:
            kind = kind_of(answered)
            return Finding("two tensors are expected: the rows and their counts", rank, got=kind)
        parts = [inputs[r].split(table[r])[rank] for r in range(n)]
        if finding := _as_many_as_sent(answered[0], len(inputs[rank]), sum(map(len, parts)), rank):
            return finding
        looks = {
            "this rank's own rows": inputs[rank],
            "the right rows, from the last rank to the first": torch.cat(parts[::-1]),
            "the rows that come from other ranks: those for the rank itself are missing": torch.cat(
                [*parts[:rank], *parts[rank + 1 :], inputs[rank][:0]]
            ),
        }
        want = reference.moved(torch.cat(parts))
        if finding := compare_tensors.mismatch(
            answered[0], _typed(want, inputs[rank].dtype), rank, looks
        ):
            return finding
        received = torch.tensor([table[r][rank] for r in range(n)])
        looks = {"what this rank sends, not what it receives": torch.tensor(table[rank])}
        if finding := compare_tensors.mismatch(answered[1], reference.moved(received), rank, looks):
            return compare_tensors.titled("the rows are right, but not their counts", finding)
    return _bytes(case, observation)


def _as_many_as_sent(got: Any, sent: int, received: int, rank: int) -> Finding | None:
    if isinstance(got, torch.Tensor) and got.dim() and sent != received and len(got) == sent:
        return Finding(
            "these are as many rows as this rank sends, and others send it a different number",
            rank,
            expected=f"{received} rows",
            got=f"{sent} rows",
        )
    return None


def _typed(want: reference.Reference, dtype: torch.dtype) -> reference.Reference:
    return reference.Reference(want.value, want.tolerance, dtype)


def _bytes(case: Case, observation: Observation) -> Finding | None:
    table, n = case.data["table"], case.world_size
    for rank, rows in enumerate(case.data["inputs"]):
        leaving = sum(table[rank]) - table[rank][rank]
        nbytes = leaving * rows.shape[1] * rows.element_size()
        if finding := traffic_limits.sent(
            observation,
            rank,
            nbytes,
            nbytes + 8 * (n - 1),
            "a count of 8 bytes for each other rank, and each of its rows once",
            "Were all parts filled up to one size?",
        ):
            return finding
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(rows, counts)",
    cases=_cases,
    on_rank=_on_rank,
    own={"inputs": by_rank, "table": by_rank},
    judge=_judge,
    hints=(
        """
        Each rank knows how many rows it sends, and not how many it gets. Who knows that? What must
        be exchanged before the rows can be?
        """,
        """
        First an all-to-all of counts: equal parts, one number for each rank. Then make a tensor
        with as many rows as come in, and give dist.all_to_all_single both lists of sizes: first
        what is received, then what is sent, as Python lists.
        """,
        """
        theirs = torch.empty_like(counts); dist.all_to_all_single(theirs, counts); received =
        rows.new_empty(int(theirs.sum()), rows.shape[1]); dist.all_to_all_single(received, rows,
        theirs.tolist(), counts.tolist()).
        """,
    ),
    passed="one exchange of counts, one of rows, and every row sent once",
    contract=Contract(
        anew=True,
        takes="rows (N, C) of any dtype, N may be 0; counts (n,) int64",
        allowed=frozenset({"all_to_all"}),
        sends="first the counts travel, 8 bytes per rank, then each row once",
    ),
)
