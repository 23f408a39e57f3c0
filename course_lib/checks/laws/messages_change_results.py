"""Messages carry what the result is made of: changed on their way, they change it.

Bytes can be counted right and mean nothing, while the data moves by a file or by the group's store.
So a case is run again and again, and each time something else arrives at one rank than was sent:
some rank's result must differ from the one without. What was only a maximum, and what the check
itself sends, is left as it is. So are whole numbers beside others: they are counts, with which the
messages that follow would not fit any more, and a rank that fails shows nothing of the others.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.observe import CommEvent, Recorder
from course_lib.ranks.source_location import location_of, text_of

from ._law import Law
from ._snapshot import leaves, same

_MOST_RUNS = 16  # messages that are changed; of more, some all over the run
_FREE = ("max", "min")  # reductions whose result may be the same for other numbers


@dataclass(frozen=True)
class Changed:
    """A message that was changed: which one of which rank, and whether a result was another."""

    rank: int
    n: int
    mattered: bool


def variations(exercise: Exercise) -> list[Exercise]:
    def cases(rng: random.Random) -> list[Case]:
        return [case for case in exercise.cases(rng) if case.world_size > 1][:1]

    if exercise.contract.allowed == frozenset():
        return []
    free = replace(exercise.contract, allowed=None)  # what the law itself sends is in the trace
    on_rank = _OnRank(exercise.on_rank)
    return [replace(exercise, cases=cases, on_rank=on_rank, judge=judge, contract=free)]


@dataclass(frozen=True)
class _OnRank:
    """The case as it is, twice, and then with one message after the other changed."""

    on_rank: Callable[[Callable, Case], Any]

    def __call__(self, answer: Callable, case: Case) -> list[Changed]:
        tamper = _Tamper()
        Recorder.on_arrival(tamper)
        try:
            first, second = (self._leaves(answer, case, tamper) for _ in range(2))
            # Times and the like are never the same, and say nothing.
            steady = [key for key in first if key in second and same(first[key], second[key])]
            mine = tamper.arrived
            return [
                Changed(rank, mine[k].n if rank == dist.get_rank() else -1, mattered)
                for rank, k in _chosen(mine)
                for mattered in [self._differs(answer, case, tamper, rank, k, first, steady)]
            ]
        finally:
            Recorder.on_arrival(None)

    def _leaves(self, answer: Callable, case: Case, tamper: "_Tamper") -> dict[str, Any]:
        tamper.arrived = []
        dist.barrier()
        return dict(leaves(self.on_rank(answer, case)))

    def _differs(
        self,
        answer: Callable,
        case: Case,
        tamper: "_Tamper",
        rank: int,
        k: int,
        first: dict[str, Any],
        steady: list[str],
    ) -> bool:
        tamper.change = k if rank == dist.get_rank() else None
        now = self._leaves(answer, case, tamper)
        tamper.change = None
        return any(key not in now or not same(first[key], now[key]) for key in steady)


@dataclass(frozen=True)
class _Arrival:
    """A message: its number in the record, and whether it carries whole numbers only."""

    n: int
    whole: bool


@dataclass
class _Tamper:
    """Looks at what arrives: notes what the answer's own lines asked for, and changes one."""

    arrived: list[_Arrival] = field(default_factory=list)
    change: int | None = None

    def __call__(self, event: CommEvent, written: list[torch.Tensor]) -> None:
        foreign = [t for t in _from_others(event, written) if t.numel()]
        if not event.where or event.reduce_op in _FREE or not foreign:
            return
        if self.change == len(self.arrived):
            for tensor in foreign:
                _spoil(tensor)
        whole = not any(tensor.is_floating_point() for tensor in foreign)
        self.arrived.append(_Arrival(event.n, whole))


def _from_others(event: CommEvent, written: list[torch.Tensor]) -> list[torch.Tensor]:
    """The parts of a gathered list, or of a gathered tensor, that come from other ranks."""
    if event.op in ("reduce", "gather") and event.peer != event.rank:
        return []  # what is left on a rank that is not the root is nobody's result
    me, n = event.ranks.index(event.rank), len(event.ranks)
    if event.op not in ("all_gather", "gather", "all_to_all"):
        return written
    if len(written) == n:
        return [tensor for rank, tensor in enumerate(written) if rank != me]
    if len(written) == 1 and written[0].dim() and written[0].shape[0] % n == 0:
        return [part for rank, part in enumerate(written[0].chunk(n)) if rank != me]
    return written


def _spoil(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        if tensor.dtype is torch.bool:
            tensor.logical_not_()
        else:
            tensor.mul_(-2).add_(1)


def _chosen(mine: list[_Arrival]) -> list[tuple[int, int]]:
    """(rank, number of the arrival) of the messages that are changed, the same on all ranks."""
    counts = _gathered(torch.tensor([len(mine)]))
    flags = torch.zeros(max(1, *map(int, counts)), dtype=torch.int64)
    flags[: len(mine)] = torch.tensor([arrival.whole for arrival in mine])
    whole = _gathered(flags)
    every = [(rank, k) for rank, count in enumerate(counts) for k in range(int(count))]
    every = [(rank, k) for rank, k in every if not whole[rank][k]] or every
    step = max(1, -(-len(every) // _MOST_RUNS))
    return every[::step]


def _gathered(mine: torch.Tensor) -> list[torch.Tensor]:
    parts = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, mine)
    return parts


def judge(case: Case, observation: Observation) -> Finding | None:
    by_rank: list[list[Changed]] = observation.values
    for column in zip(*by_rank, strict=True):
        if any(changed.mattered for changed in column):
            continue
        rank = column[0].rank
        number = next((changed.n for changed in column if changed.n >= 0), -1)
        event = next((e for e in observation.trace.of(rank) if e.n == number), None)
        where = f" in {_located(event)}" if event else ""
        return Finding(
            f"the result is right, but what arrives{where} makes no difference to any rank's "
            "result: with other numbers in that message it is the same. Is it sent for the sake of "
            "being counted?",
            rank,
        )
    return None


def _located(event: CommEvent) -> str:
    text = text_of(event.where[0])
    return f"{location_of(event.where[0])}" + (f" ({text})" if text else "")


# Ranks that fail or wait because a message is another have read it.
LAW = Law(
    variations=variations,
    applies=lambda contract: contract.causal,
    may_fail=True,
    essential=True,
)
