"""On a rank: the groups of an exercise, made before the answer is known and found by their ranks.

A group needs connections of its own. Where an answer counts it can make none, so all that the cases
need come up first, and a case that needs one again gets the same.
"""

from collections.abc import Iterable, Sequence

import torch.distributed as dist

from .exercise import Case, Exercise, innermost

_open: dict[tuple[int, ...], dist.ProcessGroup] = {}


def open_all(exercise: Exercise, cases: Iterable[Case]) -> None:
    """Make the groups of these cases, in the same order on every rank."""
    for case in cases:
        for ranks in (ranks for each in innermost(case) for ranks in exercise.groups(each)):
            if tuple(ranks) not in _open:
                _open[tuple(ranks)] = dist.new_group(list(ranks))


def group_of(ranks: Sequence[int]) -> dist.ProcessGroup:
    """The group of these ranks, one of `Exercise.groups`; not a member's group elsewhere."""
    return _open[tuple(ranks)]
