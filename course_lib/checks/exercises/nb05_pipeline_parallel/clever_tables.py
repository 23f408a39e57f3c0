"""Interleaved 1F1B and ZB-H1 as tables: less bubble by smaller stages, by a split backward.

interleaved_schedule(p, m, v) -> rows; rank r holds the stages r, r + p, ..., r + (v-1) p
    m is a multiple of p. It takes (m v + p - 1)(forward + backward) of time, in times of a small
    stage, and rank r holds at most min(m v, (v-1) p + 2 (p-r-1) + 1) activations of small stages.

zero_bubble_schedule(p, m) -> rows; the backward of stage s is I, then (any time later) W
    With F = I = W = 1 it takes 3 m + p - 1 (for m < p: 2 (m + p - 1) + 1), and a stage holds at
    most min(m, p) microbatches between F and W.
"""

import itertools
import random
from collections.abc import Sequence

from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from .tables import (
    BACKWARD,
    FORWARD,
    build_table,
    read_and_run,
    shown,
    some_sizes,
    table_cases,
)


def _interleaved_cases(rng: random.Random) -> list[Case]:
    sizes = [(2, 4, 2), (2, 2, 2), (3, 6, 1), (1, 3, 2), (4, 4, 2)]
    drawn = [(p, p * rng.randint(2, 3), rng.randint(2, 4)) for p in (2, 3, 4)]
    return table_cases(sizes + drawn)


def _judge_interleaved(case: Case, observation: Observation) -> Finding | None:
    ran = read_and_run(case, observation)
    if isinstance(ran, Finding):
        return ran
    table, timeline = ran
    p, m, v = case.data["size"]
    for rank, row in enumerate(table):
        wanted, got = list(range(rank, p * v, p)), sorted({op.stage for op in row})
        if got != wanted:
            likely = f"rank {rank} holds other stages than those with stage % p == {rank}"
            if got == list(range(rank * v, rank * v + v)):
                likely = (
                    "neighbouring stages are on one rank: that is a plain pipeline of larger "
                    "stages. Deal them out in turn, so that every rank gets one early on"
                )
            return Finding(likely, rank, expected=f"stages {wanted}", got=f"stages {got}")
    best = (m * v + p - 1) * (FORWARD + BACKWARD)
    if timeline.makespan > best:
        return Finding(
            "it can run, but stands idle more than it has to: microbatches go in groups of p "
            "through the first stage of a rank, then through its second, before the next group",
            expected=f"(m v + p - 1) (1 + 2) = {best} steps of a small stage",
            got=f"{timeline.makespan:g} steps\n{shown(table)}",
        )
    most = [min(m * v, (v - 1) * p + 2 * (p - r - 1) + 1) for r in range(p)]
    held = list(timeline.peak_held_by_rank())
    return _too_much(most, held, "min(m v, (v-1) p + 2 (p-r-1) + 1)", table)


# ---------------------------------------------------------------------------------------------


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
        likely = "it can run, but stands idle more than it has to"
        if all(_follows(row) for row in table):
            likely = (
                "every W follows its I at once, which is a B again: the stage before waits for I "
                "alone, so do W later, where the stage would stand idle"
            )
        elif all(row[-m].kind == "W" for row in table):
            likely += (
                ": all W's are left to the end. In the cool-down a stage waits for gradients, and "
                "a W fits between two I's there"
            )
        return Finding(
            likely,
            expected=f"{best} steps, with F = I = W = 1",
            got=f"{timeline.makespan:g} steps\n{shown(table)}",
        )
    held = list(timeline.peak_held(activation=1, weight=1))
    return _too_much([min(m, p)] * p, held, "min(m, p) between F and W", table)


def _rows(observation: Observation) -> Sequence[Sequence]:
    """The rows of a table, as far as the value is one."""
    table = observation.values[0]["table"]
    rows = [row for row in table if isinstance(row, list)] if isinstance(table, list) else []
    return [[op for op in row if isinstance(op, list) and op] for row in rows]


def _follows(row: Sequence) -> bool:
    pairs = itertools.pairwise(row)
    return all(b.kind == "W" and b[1:] == a[1:] for a, b in pairs if a.kind == "I")


def _too_much(most: list[int], held: list, rule: str, table: Sequence) -> Finding | None:
    for rank, (got, allowed) in enumerate(zip(held, most, strict=True)):
        if got > allowed:
            return Finding(
                f"as fast as it should be, but rank {rank} holds more than it has to: it puts off "
                "work that frees memory for longer than it needs",
                rank,
                expected=f"at most {rule} = {most} on the ranks",
                got=f"{held}\n{shown(table)}",
            )
    return None


# ---------------------------------------------------------------------------------------------

INTERLEAVED_SCHEDULE = Exercise(
    name="interleaved_schedule",
    signature="(p, m, v)",
    notebook="05_pipeline_parallel",
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
    allowed=frozenset(),
    points=2,
)

ZERO_BUBBLE_SCHEDULE = Exercise(
    name="zero_bubble_schedule",
    signature="(p, m)",
    notebook="05_pipeline_parallel",
    cases=_zero_bubble_cases,
    on_rank=build_table,
    judge=_judge_zero_bubble,
    hints=(
        """
        Begin with your 1F1B and write I for every B. That is the skeleton; the W's go into it.
        Where does 1F1B stand idle, and how many W's has stage s put off by then?
        """,
        """
        In the steady state stage s puts off s of its W's: after an I it runs a W only once more
        than s are waiting. In the cool-down, when no forwards are left, a W follows each I. What
        remains is done at the end.
        """,
        """
        Keep two counters, i for I and w for W. After the I of microbatch i: if there was no
        forward left before it, or i + 1 - w > s, run W of microbatch w and count. After the last
        I run W for w ... m-1.
        """,
    ),
    passed="a third of 1F1B's bubble, with no more than p microbatches held",
    allowed=frozenset(),
    points=2,
)
