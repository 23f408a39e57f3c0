"""From all to all, by messages.

all_gather_by_sends(tensor) -> list of tensors
    Entry i is rank i's tensor; the same list on every rank. Each rank sends n-1 tensors of its
    size and receives n-1, so that no rank carries more than another.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks import traffic_limits
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.format_tensor import glimpse
from course_lib.checks.rank_inputs import by_rank
from course_lib.text import counted

from ._moving import (
    ALONE,
    POINT,
    drawn,
    legible,
    moved_wrongly,
    nbytes,
    received_once,
)


@dataclass(frozen=True)
class _Gathered:
    """What a rank returned, what its own tensor holds then, and two entries in one memory."""

    returned: Any
    argument: torch.Tensor
    twins: tuple[int, int] | None


def _cases(rng: random.Random) -> list[Case]:
    return [
        legible(3, 3),
        legible(2, 4),
        drawn(rng, 4, (2, 3)),
        drawn(rng, 1, 4, clue=ALONE),
        drawn(rng, 5, 7, torch.float64),
        drawn(rng, 3, (), torch.int64, clue=POINT),
    ]


def _on_rank(answer: Callable, case: Case) -> _Gathered:
    tensor = case.data["inputs"][dist.get_rank()].clone()
    returned = answer(tensor)
    return _Gathered(plain(returned), plain(tensor), _twins(returned))


def _twins(returned: Any) -> tuple[int, int] | None:
    if not isinstance(returned, list | tuple):
        return None
    places: dict[int, int] = {}
    for index, entry in enumerate(returned):
        if isinstance(entry, torch.Tensor):
            first = places.setdefault(entry.data_ptr(), index)
            if first != index:
                return first, index
    return None


def _judge(case: Case, observation: Observation) -> Finding | None:
    if finding := _overwritten(case, observation.values):
        return finding
    for rank, answered in enumerate(observation.values):
        if finding := _wrong_list(answered, rank, case):
            return finding
    rule = "each rank sends its tensor to n-1 others, and receives the n-1 of the others"
    total = (case.world_size - 1) * nbytes(case)
    for rank in range(case.world_size):
        finding = traffic_limits.sent(
            observation, rank, total, total, rule, "Does everything go through this rank?"
        ) or received_once(
            rank, case.world_size - 1, rule, "Does a tensor arrive twice?", observation, case
        )
        if finding:
            return finding
    return None


def _overwritten(case: Case, answers: list[_Gathered]) -> Finding | None:
    """The mistake that the text invites: broadcasts of `tensor` itself, each rank in its turn."""
    for source, tensor in enumerate(case.data["inputs"] if case.world_size > 1 else []):
        everything = [
            entry
            for answered in answers
            for entry in (answered.argument, *_entries(answered.returned))
        ]
        if len(everything) > case.world_size and all(_same(each, tensor) for each in everything):
            rank = 1 if source == 0 else 0
            return Finding(
                f"all entries are rank {source}'s tensor, and so is `tensor` itself on every rank: "
                f"rank {source}'s turn has overwritten it before it was sent. Receive into a new "
                "tensor, and leave this one as it is",
                rank,
                expected=f"`tensor` still {glimpse(case.data['inputs'][rank])}",
                got=glimpse(answers[rank].argument),
            )
    return None


def _entries(returned: Any) -> list[Any]:
    return list(returned) if isinstance(returned, list | tuple) else []


def _wrong_list(answered: _Gathered, rank: int, case: Case) -> Finding | None:
    n, got = case.world_size, answered.returned
    expected = f"a list of {counted(n, 'tensor')}"
    if not isinstance(got, list | tuple):
        kind = kind_of(got)
        likely = f"a list of tensors is expected, one from each rank, and you returned {kind}"
        return Finding(likely, rank, expected=expected, got=kind)
    if len(got) != n:
        own = case.data["inputs"][rank]
        left_out = len(got) == n - 1 and not any(_same(entry, own) for entry in got)
        likely = "the list has one entry for each rank"
        likely += ", this rank's own tensor included" if left_out else ""
        return Finding(likely, rank, expected=expected, got=f"{len(got)} entries")
    if answered.twins:
        one, two = answered.twins
        return Finding(
            f"entries {one} and {two} are one and the same tensor, so the last message overwrites "
            "the earlier ones: make a new tensor for each rank, torch.empty_like(tensor)",
            rank,
            expected=expected,
            got=f"the same memory twice, holding {glimpse(got[two])}",
        )
    owners = [_owner(entry, case) for entry in got]
    in_order = list(range(n))
    if owners != in_order and sorted(o for o in owners if o is not None) == in_order:
        return Finding(
            "the right tensors, in another order: entry i is rank i's, the same list on every rank",
            rank,
            expected=f"those of ranks {in_order}",
            got=f"those of ranks {owners}",
        )
    for source, entry in enumerate(got):
        if finding := moved_wrongly(entry, source, rank, case):
            likely = f"entry {source} of the list is not rank {source}'s tensor: {finding.likely}"
            return Finding(likely, rank, finding.input, finding.expected, finding.got)
    if not torch.equal(answered.argument, case.data["inputs"][rank]):
        return Finding(
            "the list is right, but the tensor that was passed in has changed",
            rank,
            expected=f"still {glimpse(case.data['inputs'][rank])}",
            got=glimpse(answered.argument),
        )
    return None


def _owner(entry: Any, case: Case) -> int | None:
    """The rank whose tensor it is; None if that of no rank, or of several."""
    owners = [rank for rank, tensor in enumerate(case.data["inputs"]) if _same(entry, tensor)]
    return owners[0] if len(owners) == 1 else None


def _same(entry: Any, tensor: torch.Tensor) -> bool:
    return isinstance(entry, torch.Tensor) and torch.equal(entry, tensor)


EXERCISE = Exercise(
    module=__name__,
    signature="(tensor)",
    cases=_cases,
    on_rank=_on_rank,
    own={"inputs": by_rank},
    judge=_judge,
    hints=(
        """
        Every rank has something that all others need. You already have a function that brings one
        rank's tensor to all others.
        """,
        """
        n broadcasts, one after the other, each with another root; all ranks go through the roots
        in the same order. The tensor to broadcast is, on the root, its own; elsewhere a new, empty
        one. (If you prefer isend: begin all sends, do all receives, then wait for the sends.)
        """,
        """
        pieces = a list of n tensors: a clone of tensor at this rank's own place, a
        torch.empty_like(tensor) at every other. Then for each root in range(n):
        broadcast_by_sends(pieces[root], root). Return pieces.
        """,
    ),
    passed="every rank sends n-1 tensors and receives n-1",
    contract=Contract(
        anew=True,
        takes="any shape, even of a single number",
        allowed=POINT_TO_POINT,
        separate=True,
        sends="each rank sends n-1 tensors of its size and receives n-1",
    ),
)
