"""A number of a pipeline: how much it holds.

peak_in_flight(row) -> the most (stage, microbatch) pairs between their F and their B or W
"""

import random
from typing import Any

from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.returned_numbers import number
from course_lib.text import counted

from ._tables import Op


def _row_cases(rng: random.Random) -> list[Case]:
    def alternating(warm_up: int, m: int) -> list[Op]:
        row = [Op("F", 0, i) for i in range(warm_up)]
        for i in range(m - warm_up):
            row += [Op("F", 0, warm_up + i), Op("B", 0, i)]
        return row + [Op("B", 0, i) for i in range(m - warm_up, m)]

    gpipe = [Op(kind, 1, i) for kind in "FB" for i in range(5)]
    # In the rows that are fixed each mistake gives a number of its own, so that it can be named.
    halves = "F0 I0 W0 F1 I1 F2 F3 F4 I2 F5 I3 W1 W3 B4 I5 F6 W2 W5 I6 W6"
    split = [Op(op[0], 2, int(op[1])) for op in halves.split()]
    chunks = [Op("F", c, i) for c in (0, 2) for i in range(3)]
    chunks += [Op("B", c, i) for c in (2, 0) for i in range(3)]
    in_turn = [Op(kind, 0, i) for kind, i in zip("FFBBFB", (0, 1, 0, 1, 2, 2), strict=True)]
    in_turn += [Op(kind, 2, i) for kind in "FB" for i in (3, 4, 5)]
    jumbled = [Op("F", 0, 2), Op("F", 0, 0), Op("B", 0, 2), Op("F", 0, 1), Op("B", 0, 0)]
    warm_up, m = rng.randint(2, 5), rng.randint(6, 60)
    return [
        _row("GPipe, m = 5", gpipe),
        _row("1F1B with a warm-up of 3, m = 6", alternating(3, 6)),
        _row(f"1F1B with a warm-up of {warm_up}, m = {m}", alternating(warm_up, m)),
        _row("one microbatch after the other", alternating(0, 4)),
        _row("a backward in halves, I and W", split),
        _row("two stages on this rank", chunks),
        _row("two stages, one after the other", in_turn),
        _row("another order", [*jumbled, Op("B", 0, 1)]),
        *(_row(f"{counted(n, 'pass')} in some order", _drawn(rng, n)) for n in (5, 30)),
    ]


def _drawn(rng: random.Random, passes: int) -> list[Op]:
    """Some row that can run, with whole and split backwards, of three stages."""
    waiting = [[Op("F", rng.randrange(3), i)] for i in range(passes)]
    for ops in waiting:
        ops += [Op(kind, *ops[0][1:]) for kind in rng.choice(("B", "IW"))]
    row = []
    while waiting:
        ops = rng.choice(waiting[:6])
        row.append(ops.pop(0))
        waiting = [ops for ops in waiting if ops]
    return row


def _row(label: str, row: list[Op]) -> Case:
    return Case(1, label, {"row": [tuple(op) for op in row]})


def _row_on_rank(answer: Any, case: Case) -> Any:
    return plain(answer([Op(*op) for op in case.data["row"]]))


def _judge_row(case: Case, observation: Observation) -> Finding | None:
    row = [Op(*op) for op in case.data["row"]]
    want, got = _held(row, "BW"), number(observation.values[0])
    if got == want:
        return None
    if got is None:
        return Finding(f"one number is expected: this is {kind_of(observation.values[0])}")
    split = any(op.kind == "I" for op in row)
    causes = [
        (split and _held(row, "B"), "a W frees the activations as a B does: it ends the backward"),
        (split and _held(row, "BI"), "an I frees nothing yet: W still needs the activations"),
        (split and _held(row, "BIW"), "of I and W only one frees the activations, and it is W"),
        (sum(op.kind == "F" for op in row), "this counts all forwards, as if nothing were freed"),
        (0, "this is what is held at the end; the peak is the most at any moment before"),
        (want - 1, "count after the F as well: one less is what was held just before it"),
        (_summed(row), "the stages' peaks added up, and they need not be at the same moment"),
        (_by_microbatch(row), "two stages of this rank hold two activations of one microbatch"),
    ]
    fits = [cause for count, cause in causes if count is not False and count == got]
    return Finding(
        "; or ".join(fits[:3]) or "count +1 for F, -1 for B or W",
        input=" ".join(f"{op.kind}{op.stage}.{op.microbatch}" for op in row),
        expected=f"{want}",
        got=f"{got:g}",
    )


def _held(row: list[Op], freeing: str) -> int:
    held = most = 0
    for op in row:
        held += (op.kind == "F") - (op.kind in freeing)
        most = max(most, held)
    return most


def _summed(row: list[Op]) -> int:
    return sum(_held([op for op in row if op.stage == s], "BW") for s in {op.stage for op in row})


def _by_microbatch(row: list[Op]) -> int:
    held: set[int] = set()
    most = 0
    for op in row:
        if op.kind == "F":
            held.add(op.microbatch)
        elif op.kind != "I":
            held.discard(op.microbatch)
        most = max(most, len(held))
    return most


EXERCISE = Exercise(
    module=__name__,
    signature="(row)",
    cases=_row_cases,
    on_rank=_row_on_rank,
    judge=_judge_row,
    hints=(
        """
        Walk along the row and keep a count: what does F do to it, what does B? The answer is the
        largest value that the count had.
        """,
        """
        F: +1. B: -1. If the backward is split, W still needs the activations: I changes nothing,
        W: -1.
        """,
        """
        held = most = 0; for op in row: add 1 for "F", subtract 1 for "B" and "W", then most =
        max(most, held). Return most.
        """,
    ),
    passed="activations are held from F to B, or to W",
    contract=Contract(
        takes="a row of F, B, I and W of one or more stages",
        allowed=frozenset(),
    ),
)
