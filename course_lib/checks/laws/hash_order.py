"""Ranks agree though each has its own order of a set, and its own hash of a text.

On a cluster every rank is a Python that was started by itself. A set of names, dtypes or modules
has a different order in each, and hash("name") a different value (PYTHONHASHSEED). The ranks of a
check are forked from one process, and agree by accident. So where the code of an answer makes a set
or asks for a hash (`course_lib.checks.hash_order_dependence`), one case is run with a rank that is
a Python of its own.
What needs no other rank is called there and here, and has to give the same.
"""

import random
from dataclasses import replace

from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from ._law import Law
from ._snapshot import alike, leaves

_SAME_FOR_ALL = (
    "the ranks get different results from the same arguments, where each has to compute the same"
)


def variations(exercise: Exercise) -> list[Exercise]:
    def on_several_ranks(rng: random.Random) -> list[Case]:
        several = [case for case in exercise.cases(rng) if case.world_size > 1]
        fewest = min((case.world_size for case in several), default=0)
        # The first case of an exercise is often the smallest: two names have few orders.
        return [case for case in several if case.world_size == fewest][-1:]

    def on_two(rng: random.Random) -> list[Case]:
        cases = exercise.cases(rng)
        alone = all(case.world_size == 1 for case in cases)  # else it knows which rank it is
        return [replace(case, world_size=2) for case in cases[-1:] if alone]

    found = [replace(exercise, cases=on_several_ranks)]
    if exercise.contract.allowed == frozenset() and not exercise.contract.any_order:
        found.append(replace(exercise, cases=on_two, judge=_is_the_same))
    return found


def _is_the_same(case: Case, observation: Observation) -> Finding | None:
    one, other = (dict(leaves(value)) for value in observation.values)
    if one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one):
        return None
    return Finding(
        _SAME_FOR_ALL, expected=f"{observation.values[0]}", got=f"{observation.values[1]}"
    )


LAW = Law(
    variations=variations,
    essential=True,
    fresh=True,
    because="all went well as long as hash() of a text, and so the order of a set, was the same on "
    "all ranks. In this run it is not, as on a cluster (PYTHONHASHSEED). See `{line}`: go by a "
    "list, a dict or sorted(...)",
    order=1,
)
