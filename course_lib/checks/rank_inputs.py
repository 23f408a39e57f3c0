"""Which part of a case is whose: a rank is sent its own, and of the others' nothing.

What lies in a process can be found there, in frames, in the collector's lists, in raw memory. So a
rank that is to get a number by a message must not have it before. An exercise says for each entry
of its data how it is cut up (`Exercise.own`); what is not named there goes to every rank.

    own={"inputs": by_rank, "x": along(0)}
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch

from .exercise import Case, Exercise, Own, innermost


def share(exercise: Exercise, case: Case, rank: int) -> Case:
    """The case as `rank` gets it. Cases within its data, as a law may put there, are cut up too."""
    if innermost(case) != [case]:
        return dataclasses.replace(case, data=_cut_inside(exercise, case.data, rank))
    own = {
        name: cut(case.data[name], case, rank)
        for name, cut in exercise.own.items()
        if name in case.data
    }
    return dataclasses.replace(case, data={**case.data, **own})


def _cut_inside(exercise: Exercise, data: dict[str, Any], rank: int) -> dict[str, Any]:
    return {
        name: tuple(share(exercise, each, rank) for each in value)
        if type(value) is tuple and all(isinstance(each, Case) for each in value)
        else value
        for name, value in data.items()
    }


# ------------------------------------------------------------------------------------------------
# Ways to cut
# ------------------------------------------------------------------------------------------------


def by_rank(value: list, case: Case, rank: int) -> list:
    """Of a list with an entry for each rank, this rank's; of one for each of `members`, theirs."""
    members = case.data.get("members")
    owners = range(case.world_size) if members is None else members
    return [each if owner == rank else None for owner, each in zip(owners, value, strict=True)]


def by_worker(value: list, case: Case, rank: int) -> list:
    """Of a list with an entry for each rank but rank 0, this rank's."""
    return [each if owner == rank else None for owner, each in enumerate(value, start=1)]


def in_turn(value: list, case: Case, rank: int) -> list:
    """Of a list that equal runs of neighbours belong to the ranks of, this rank's."""
    mine = len(value) // case.world_size
    return [each if place // mine == rank else None for place, each in enumerate(value)]


def each(cut: Own) -> Own:
    """A list whose every entry is cut up."""
    return lambda value, case, rank: [cut(entry, case, rank) for entry in value]


def only(rank_of: Callable[[Case], int]) -> Own:
    """All of it is one rank's; the others get something of its shape."""

    def cut(value: Any, case: Case, rank: int) -> Any:
        return value if rank == rank_of(case) else blank(value)

    return cut


def along(dim: int) -> Own:
    """A tensor in equal parts along `dim`, in the order of the ranks; whole, if there are none."""

    def cut(value: torch.Tensor, case: Case, rank: int) -> torch.Tensor:
        if value.shape[dim] % case.world_size:
            return value
        size = value.shape[dim] // case.world_size
        return _kept(value, dim, range(rank * size, (rank + 1) * size))

    return cut


def rows(of: Callable[[Case, int], Any], dim: int = 0) -> Own:
    """A tensor of which `of(case, rank)` says the indices along `dim` that are the rank's."""
    return lambda value, case, rank: _kept(value, dim, of(case, rank))


def blank(value: Any) -> Any:
    """Something of the same shape that says nothing else: NaN, or 0 where there is none."""
    if isinstance(value, torch.Tensor):
        return torch.full_like(value, math.nan if value.is_floating_point() else 0)
    if isinstance(value, dict):
        return {name: blank(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(blank(entry) for entry in value)
    return None


def _kept(value: torch.Tensor, dim: int, indices: Any) -> torch.Tensor:
    indices = torch.arange(value.shape[dim])[indices] if isinstance(indices, slice) else indices
    indices = torch.as_tensor(list(indices), dtype=torch.int64)
    return blank(value).index_copy(dim, indices, value.index_select(dim, indices))
