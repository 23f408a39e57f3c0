"""How much each rank computes at each step of a causal ring.

causal_work(positions) -> n rows of n whole numbers
    positions[r]: the positions of rank r's tokens. Entry [r][s]: how many pairs (query, key) rank
    r computes at step s, when it holds the block of rank (r - s) % n and each query sees the keys
    that are not later than itself.
"""

import random
from typing import Any

import torch

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.text import counted

from ._attention import causal, shuffled, striped, zigzag
from ._attention import plain as plain_split

Table = list[list[int]]


def _cases(rng: random.Random) -> list[Case]:
    splits = [
        ("plain split", plain_split(4, 2)),
        ("plain split", plain_split(12, 4)),
        ("zigzag split", zigzag(12, 3)),
        ("striped split", striped(12, 3)),
        ("any tokens on any rank", shuffled(rng, 5 * rng.randint(3, 6), 5)),
        ("all tokens", plain_split(4, 1)),
    ]
    return [
        Case(
            1,
            f"{words}, {counted(sum(map(len, positions)), 'token')} over "
            f"{counted(len(positions), 'rank')}",
            {"positions": positions},
        )
        for words, positions in splits
    ]


def _on_rank(answer: Any, case: Case) -> Any:
    return plain(answer([each.clone() for each in case.data["positions"]]))


def _table(positions: list[torch.Tensor], *, strict: bool = False, owner_at: int = -1) -> Table:
    """owner_at: after s steps a rank has the block of rank + owner_at * s; strict: it errs."""
    n = len(positions)
    return [
        [
            int(causal(positions[r] - int(strict), positions[(r + owner_at * s) % n]).sum())
            for s in range(n)
        ]
        for r in range(n)
    ]


def _judge(case: Case, observation: Observation) -> Finding | None:
    positions = case.data["positions"]
    n = len(positions)
    got = _rows(observation.values[0], n)
    if isinstance(got, Finding):
        return got
    wanted = _table(positions)
    if got == wanted:
        return None
    rank, step = next((r, s) for r in range(n) for s in range(n) if got[r][s] != wanted[r][s])
    return Finding(
        _cause(got, wanted, positions)
        or f"rank {rank}, step {step}: count the pairs again, in "
        f"which a query of rank {rank} sees a key of rank {(rank - step) % n}",
        expected=f"{wanted[rank][step]} pairs for rank {rank} at step {step}: {_shown(wanted)}",
        got=f"{got[rank][step]:g}: {_shown(got)}",
    )


def _rows(value: Any, n: int) -> list[list[float]] | Finding:
    if isinstance(value, torch.Tensor):
        value = value.tolist()
    expected = f"{counted(n, 'row')}, one per rank, of {counted(n, 'number')}, one per step"
    rows = value if isinstance(value, list | tuple) else []
    fits = len(rows) == n and all(isinstance(row, list | tuple) and len(row) == n for row in rows)
    if not fits:
        return Finding(f"{expected} are expected", expected=expected, got=kind_of(value))
    if not all(isinstance(x, int | float) for row in rows for x in row):
        return Finding("the entries should be numbers", expected=expected, got=str(value)[:80])
    return [list(row) for row in rows]


def _cause(got: list[list[float]], wanted: Table, positions: list[torch.Tensor]) -> str:
    n, block = len(positions), len(positions[0])
    by_owner = [[row[(r - b) % n] for b in range(n)] for r, row in enumerate(wanted)]
    causes = [
        (by_owner, "entry [r][b] is that of rank b's block here: the columns should be steps, and "
         "at step s the block is that of rank (r - s) % n"),
        (_table(positions, owner_at=1), "after s steps rank r holds the block of rank (r - s) % n, "
         "not of r + s: blocks travel to the next rank"),
        (_table(positions, strict=True), "a query sees its own key as well: >=, not >"),
        ([[block * block] * n for _ in range(n)], "these are all pairs: a query sees only keys "
         "that are not later than itself"),
        ([[block * block * (x > 0) for x in row] for row in wanted], "a block of which anything is "
         "seen counts in full here: count the pairs that are seen"),
        ([list(row) for row in zip(*wanted, strict=True)], "rows are ranks and columns are steps: "
         "yours are the other way round"),
        ([[block * block - x for x in row] for row in wanted], "these are the pairs that are "
         "hidden: a query sees keys at its own position and before"),
        ([[x / (block * block) for x in row] for row in wanted], "these are shares of a block: "
         "give the numbers of pairs"),
    ]  # fmt: skip
    return "; or ".join(why for table, why in causes if table == got)


def _shown(table: Any) -> str:
    return "; ".join(" ".join(f"{x:g}" for x in row) for row in table)


EXERCISE = Exercise(
    module=__name__,
    signature="(positions)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Which block does rank r hold at step s? And which pairs of that block's keys and its own
        queries are on the right side of the causal mask?
        """,
        """
        positions[r][:, None] >= positions[owner][None, :] is True for the pairs that are seen, with
        owner = (r - s) % n. Its sum is the number of them.
        """,
        """
        [[int((positions[r][:, None] >= positions[(r - s) % n][None, :]).sum()) for s in range(n)]
        for r in range(n)].
        """,
    ),
    passed="pairs of queries and keys, counted for each rank and step",
    contract=Contract(
        takes="positions of 1 rank and more, as many tokens on each; a list of lists or a tensor",
        allowed=frozenset(),
    ),
)
