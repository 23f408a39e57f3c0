"""Two numbers of a pipeline: how long it idles, and how much it holds.

bubble_fractions(p, m) -> (of all the time, of the working time)
peak_in_flight(row) -> the most (stage, microbatch) pairs between their F and their B or I
"""

import random
from typing import Any

from course_lib.checks.answers import kind_of, plain
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.numbers import close, number

from .tables import Op

_EXACT = 1e-9


def _bubble_cases(rng: random.Random) -> list[Case]:
    sizes = [(4, 1), (4, 8), (1, 5), (8, 32)]
    sizes += [(rng.randint(2, 64), rng.randint(1, 256)) for _ in range(3)]
    return [Case(1, f"p = {p}, m = {m}", {"size": (p, m)}) for p, m in sizes]


def _bubble_on_rank(answer: Any, case: Case) -> Any:
    return plain(answer(*case.data["size"]))


def _judge_bubble(case: Case, observation: Observation) -> Finding | None:
    p, m = case.data["size"]
    answered = observation.values[0]
    values = list(answered) if isinstance(answered, tuple | list) else [answered]
    got = [number(value) for value in values]
    if len(got) != 2 or None in got:
        return Finding(
            "two numbers are asked, (of all the time, of the working time)",
            got=kind_of(answered) if len(values) == 1 else f"{values}",
        )
    total, ideal = (p - 1) / (m + p - 1), (p - 1) / m
    if close(got[0], total, _EXACT) and close(got[1], ideal, _EXACT):
        return None
    return Finding(
        _bubble_cause(got, p, m),
        expected=f"{total:.4f} of all the time, {ideal:.4f} of the working time",
        got=f"{got[0]:.4f} and {got[1]:.4f}",
    )


def _bubble_cause(got: list, p: int, m: int) -> str:
    def is_(of_total: float, of_ideal: float) -> bool:
        return close(got[0], of_total, _EXACT) and close(got[1], of_ideal, _EXACT)

    total, ideal = (p - 1) / (m + p - 1), (p - 1) / m
    causes = [
        (is_(ideal, total), "the two are swapped: the share of all the time comes first"),
        (is_(ideal, ideal), "both are shares of the working time: (p-1)/m can even exceed 1"),
        (is_(total, total), "both are shares of all the time"),
        (is_(100 * total, 100 * ideal), "these are per cent: give fractions"),
        (
            is_((p - 1) / p, p - 1),
            "this is the naive pipeline's, m = 1, whatever m is: microbatches make it smaller",
        ),
        (
            is_(p / (m + p), p / m),
            "a stage idles while p - 1 others fill and drain, not p of them",
        ),
        (is_(1 - total, 1 - ideal), "this is the busy share; the bubble is the rest"),
    ]
    return next((cause for applies, cause in causes if applies), "") or (
        f"draw p = 2, m = 2 on paper: of the {m + p - 1} steps that the pipeline takes here, a "
        f"stage works in {m}"
    )


# ---------------------------------------------------------------------------------------------


def _row_cases(rng: random.Random) -> list[Case]:
    def alternating(warm_up: int, m: int) -> list[Op]:
        row = [Op("F", 0, i) for i in range(warm_up)]
        for i in range(m - warm_up):
            row += [Op("F", 0, warm_up + i), Op("B", 0, i)]
        return row + [Op("B", 0, i) for i in range(m - warm_up, m)]

    gpipe = [Op(kind, 1, i) for kind in "FB" for i in range(5)]
    split = [Op(k, 2, i) for k, i in zip("FFIFIWIWW", (0, 1, 0, 2, 1, 0, 2, 1, 2), strict=True)]
    chunks = [Op("F", c, i) for c in (0, 2) for i in range(3)]
    chunks += [Op("B", c, i) for c in (2, 0) for i in range(3)]
    jumbled = [Op("F", 0, 2), Op("F", 0, 0), Op("B", 0, 2), Op("F", 0, 1), Op("B", 0, 0)]
    warm_up, m = rng.randint(2, 5), rng.randint(6, 60)
    return [
        _row("GPipe, m = 5", gpipe),
        _row("1F1B with a warm-up of 3, m = 6", alternating(3, 6)),
        _row(f"1F1B with a warm-up of {warm_up}, m = {m}", alternating(warm_up, m)),
        _row("one microbatch after the other", alternating(0, 4)),
        _row("a backward in halves, I and W", split),
        _row("two stages on this rank", chunks),
        _row("another order", [*jumbled, Op("B", 0, 1)]),
    ]


def _row(label: str, row: list[Op]) -> Case:
    return Case(1, label, {"row": [tuple(op) for op in row]})


def _row_on_rank(answer: Any, case: Case) -> Any:
    return plain(answer([Op(*op) for op in case.data["row"]]))


def _judge_row(case: Case, observation: Observation) -> Finding | None:
    row = [Op(*op) for op in case.data["row"]]
    want, got = _held(row, "BI"), number(observation.values[0])
    if got == want:
        return None
    if got is None:
        return Finding(f"one number is asked: this is {kind_of(observation.values[0])}")
    split = any(op.kind == "I" for op in row)
    causes = [
        (split and _held(row, "B"), "an I frees the activations as a B does: nobody waits for W"),
        (split and _held(row, "BIW"), "a W frees nothing that counts here: its I has done it"),
        (sum(op.kind == "F" for op in row), "this counts all forwards, as if nothing were freed"),
        (0, "this is what is held at the end; the peak is the most at any moment before"),
        (want - 1, "count after the F as well: one less is what was held just before it"),
        (_by_microbatch(row), "two stages of this rank hold two activations of one microbatch"),
    ]
    return Finding(
        next(
            (cause for count, cause in causes if count is not False and count == got),
            "count +1 for F, -1 for B or I",
        ),
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


def _by_microbatch(row: list[Op]) -> int:
    held: set[int] = set()
    most = 0
    for op in row:
        if op.kind == "F":
            held.add(op.microbatch)
        else:
            held.discard(op.microbatch)
        most = max(most, len(held))
    return most


# ---------------------------------------------------------------------------------------------

BUBBLE_FRACTIONS = Exercise(
    name="bubble_fractions",
    signature="(p, m)",
    notebook="05_pipeline_parallel",
    cases=_bubble_cases,
    on_rank=_bubble_on_rank,
    judge=_judge_bubble,
    hints=(
        """
        Take a forward and a backward of one microbatch as one step. How many steps does a stage
        work? How many steps pass from the first to the last of the whole pipeline?
        """,
        """
        Every stage works m steps. The last stage begins when the first microbatch has passed p - 1
        others, and as much passes at the end until the gradient is back. So it all takes m + p - 1
        steps.
        """,
        """
        The idle steps of a stage are (m + p - 1) - m. Divide them by m + p - 1 for the share of all
        the time, and by m for the share of the working time.
        """,
    ),
    passed="(p-1)/(m+p-1) of all the time is (p-1)/m of the working time",
    allowed=frozenset(),
)

PEAK_IN_FLIGHT = Exercise(
    name="peak_in_flight",
    signature="(row)",
    notebook="05_pipeline_parallel",
    cases=_row_cases,
    on_rank=_row_on_rank,
    judge=_judge_row,
    hints=(
        """
        Walk along the row and keep a count: what does F do to it, what does B? The answer is the
        largest value that the count had.
        """,
        """
        F: +1. B: -1. If the backward is split, I does what the stage before waits for and lets
        the microbatch go: -1. W changes nothing.
        """,
        """
        held = most = 0; for op in row: add 1 for "F", subtract 1 for "B" and "I", then most =
        max(most, held). Return most.
        """,
    ),
    passed="activations are held from F to B, or to I",
    allowed=frozenset(),
)
