"""What a pipeline schedule is, and how it is written down.

A schedule is data: for each rank, the operations it runs, in order. Whoever executes, simulates,
checks or draws a pipeline reads this one table, so a picture cannot differ from what ran.

    rank 0 | F0 F1 F2 B0 B1 B2      Op("F", 0, 0), Op("F", 0, 1), ...
    rank 1 | F0 B0 F1 B1 F2 B2      Op("F", 1, 0), Op("B", 1, 0), ...

    F  forward of one microbatch through one stage
    B  its backward, whole
    I  its backward for the stage's input only: all that the stage before waits for
    W  its backward for the stage's weights: nobody waits for it

I and W are the halves of B, and stand in its stead. The Zero Bubble paper (Qi et al. 2024) calls
the first half B; PyTorch's pipelining has the same four letters as here.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT = KINDS = ("F", "B", "I", "W")


class Op(NamedTuple):
    """One pass of one microbatch through one stage.

    Stages count through the whole model. A rank that holds several (interleaving) is told apart by
    them: with p ranks, Megatron's chunk c on rank r is stage r + c * p.
    """

    kind: str
    stage: int
    microbatch: int

    def __str__(self) -> str:
        """`F0.3`: forward, stage 0, microbatch 3; also the name of its span in a profile."""
        return f"{self.kind}{self.stage}.{self.microbatch}"


Schedule = tuple[tuple[Op, ...], ...]  # one row per rank

_CELL = re.compile(rf"([{''.join(KINDS)}])(?:(\d+)\.)?(\d+)")
_ROW = re.compile(r"(?:rank\s+(\d+)\s*\|)?(.*)")


def parse_op(text: str, stage: int | None = None) -> Op:
    """The `Op` that `F0.3` stands for; a short `F3` belongs to `stage`."""
    cell = _CELL.fullmatch(text)
    if cell is None:
        raise ValueError(f"{text!r} is not an operation: write F, B, I or W, then 0.3 or 3")
    kind, written, microbatch = cell.groups()
    if written is not None:
        stage = int(written)
    if stage is None:
        raise ValueError(f"{text!r} names no stage; write {kind}0.{microbatch} for stage 0")
    return Op(kind, stage, int(microbatch))


def parse_schedule(text: str) -> Schedule:
    """Read a grid back, one line per rank; the stage of a short cell (`F3`) is its rank."""
    rows: list[tuple[Op, ...]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        row = _ROW.fullmatch(line)
        assert row is not None  # it takes any line
        number, cells = row.groups()
        rank = len(rows)
        if number is not None and int(number) != rank:
            raise ValueError(f"line {rank} of the schedule says rank {number}; rank {rank} is due")
        try:
            rows.append(tuple(parse_op(cell, stage=rank) for cell in cells.split()))
        except ValueError as problem:
            raise ValueError(f"rank {rank}: {problem}") from None
    return tuple(rows)


def format_schedule(
    schedule: Sequence[Sequence[Op]], mark: tuple[int, int] | None = None, context: int = 8
) -> str:
    """The schedule as text, one line per rank, in each rank's own order (not in time).

    `mark` = (rank, position) points at one position, which may be the end of a row; only `context`
    operations before and after it are then shown, so that a long schedule still fits a message.
    """
    short = all(op.stage == rank for rank, row in enumerate(schedule) for op in row)
    table = [[f"{op.kind}{op.microbatch}" if short else str(op) for op in row] for row in schedule]
    first, last = 0, None
    if mark is not None:
        first, last = max(0, mark[1] - context), mark[1] + context + 1
    width = max((len(cell) for row in table for cell in row), default=2)
    digits = len(str(max(len(table) - 1, 0)))
    lines = []
    for rank, row in enumerate(table):
        before = "... " if first else ""
        after = " ..." if last is not None and last < len(row) else ""
        cells = " ".join(cell.ljust(width) for cell in row[first:last])
        lines.append(f"rank {rank:>{digits}} | {before}{cells.rstrip()}{after}".rstrip())
        if mark is not None and mark[0] == rank:
            indent = len(f"rank {rank:>{digits}} | {before}") + (mark[1] - first) * (width + 1)
            lines.append(" " * indent + "^" * width + " here")
    return "\n".join(lines)


def check_sizes(p: int, m: int) -> None:
    """Raise `ValueError` unless there are a rank and a microbatch."""
    if p < 1 or m < 1:
        raise ValueError(f"p = {p} ranks and m = {m} microbatches must both be at least 1")
