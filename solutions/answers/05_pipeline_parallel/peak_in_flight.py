"""Known answers to peak_in_flight."""

import itertools
from collections import Counter

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong


@right
def peak_in_flight(row):
    change = {"F": 1, "B": -1, "I": 0, "W": -1}
    counts = torch.tensor([change[op.kind] for op in row]).cumsum(0)
    return counts.max()


def walk(row, freeing, before=False):
    held = most = 0
    for op in row:
        if before:
            most = max(most, held)
        held += (op.kind == "F") - (op.kind in freeing)
        if not before:
            most = max(most, held)
    return most


@wrong(says="this counts all forwards")
def all_forwards(row):
    return sum(op.kind == "F" for op in row)


@wrong(says="this is what is held at the end")
def held_at_the_end(row):
    return sum({"F": 1, "B": -1, "I": 0, "W": -1}[op.kind] for op in row)


@wrong(says="a W frees the activations as a B does")
def only_whole_backwards(row):
    return walk(row, "B")


@wrong(says="an I frees nothing yet: W still needs the activations")
def until_i(row):
    return walk(row, "BI")


@wrong(says="two stages of this rank hold two activations")
def by_microbatch_alone(row):
    held, most = set(), 0
    for op in row:
        if op.kind != "I":
            (held.add if op.kind == "F" else held.discard)(op.microbatch)
        most = max(most, len(held))
    return most


@wrong(says="one number is expected: this is a list")
def a_history(row):
    return [walk(row[:n], "BW") for n in range(len(row))]


@wrong(says="one less is what was held just before it")
def off_by_one(row):
    return walk(row, "BW") - 1


@right
def a_set_of_pairs(row):
    held, sizes = set(), []
    for kind, stage, microbatch in row:
        if kind == "F":
            held.add((stage, microbatch))
        elif kind != "I":
            held.remove((stage, microbatch))
        sizes.append(len(held))
    return max(sizes)


@right
def accumulated(row):
    steps = ((op.kind == "F") - (op.kind in {"B", "W"}) for op in row)
    return float(max(itertools.accumulate(steps)))


@right
def by_every_prefix(row):
    counts = [Counter(op[0] for op in row[: n + 1]) for n in range(len(row))]
    return max(count["F"] - count["B"] - count["W"] for count in counts)


@wrong(says="the stages' peaks added up")
def stage_by_stage(row):
    return sum(walk([op for op in row if op.stage == s], "BW") for s in {op.stage for op in row})


@wrong(says="the argument `row` is not what it was before the call")
def row_used_up(row):
    most = walk(row, "BW")
    row.clear()
    return most


@wrong(says="count +1 for F, -1 for B or W")
def the_warm_up(row):
    return next(n for n, op in enumerate(row) if op.kind != "F")


@right
def as_a_running_maximum(row):
    steps = [(op[0] == "F") - (op[0] in "BW") for op in row]
    return int(np.max(np.cumsum(steps), initial=0))
