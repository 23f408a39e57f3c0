"""On a rank: the groups of an exercise, made before the answer is known and found by their ranks.

A group needs connections of its own. Where an answer counts it can make none, so all that the cases
need come up first, a case that needs one again gets the same, and a learner is told so in `check`.
"""

from collections.abc import Iterable, Sequence
from typing import NoReturn

import torch.distributed as dist
from torch.distributed import distributed_c10d

from .exercise import Case, Exercise, innermost

_open: dict[tuple[int, ...], dist.ProcessGroup] = {}


def open_all(exercise: Exercise, cases: Iterable[Case]) -> None:
    """Make the groups of these cases, in one order on every rank; from here on none is made."""
    for case in cases:
        for ranks in (ranks for each in innermost(case) for ranks in exercise.groups(each)):
            if tuple(ranks) not in _open:
                _open[tuple(ranks)] = dist.new_group(list(ranks))
    vars(distributed_c10d)["_new_process_group_helper"] = _refuse


def group_of(ranks: Sequence[int]) -> dist.ProcessGroup:
    """The group of these ranks, one of `Exercise.groups`; not a member's group elsewhere."""
    return _open[tuple(ranks)]


def _refuse(*_: object, **__: object) -> NoReturn:
    raise RuntimeError(
        "an answer makes no process group: use the one that it is given, or else all ranks"
    )
