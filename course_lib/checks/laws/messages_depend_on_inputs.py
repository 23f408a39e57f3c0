"""What is sent depends on what goes in.

Zeros of the right size, and other numbers that both sides know beforehand, say nothing: an answer
could add them to a result that it has from elsewhere, and every message would make a difference. So
two cases with other inputs are run: where the results differ, something that arrived must as well.
And what is counted as received must really have arrived.
"""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.observe import CommEvent, Recorder

from ._law import Law
from ._snapshot import difference, frozen, leaves, same

_BOTH = "both"  # the two cases, in the data of the one that the law runs
_WRITES = frozenset(
    {"recv", "broadcast", "all_reduce", "all_gather", "reduce_scatter", "all_to_all"}
)


@dataclass(frozen=True)
class Told:
    """Of two runs: whether this rank's result differs, and digests of what arrived in each.

    messages: how many arrived in both, the check's own included.
    """

    differs: bool
    arrived: list[str]
    arrived_then: list[str]
    messages: int


def variations(exercise: Exercise) -> list[Exercise]:
    def cases(rng: random.Random) -> list[Case]:
        pairs = zip(exercise.cases(rng), exercise.cases(rng), strict=True)
        several = [(one, other) for one, other in pairs if one.world_size > 1]
        # The first case of an exercise may be one that everybody can guess; few ranks are enough.
        drawn = several[:0:-1] or several
        # Two that are the same show nothing.
        drawn = [(a, b) for a, b in drawn if difference(frozen(a.data), b.data)] or drawn
        # As many ranks as the causal law has, which goes through the same ones.
        ranks = several[0][0].world_size if several else 0
        near = sorted(drawn, key=lambda pair: (pair[0].world_size != ranks, pair[0].world_size))
        chosen = near[:1]
        return [replace(one, data={_BOTH: (one, other)}) for one, other in chosen]

    if exercise.contract.allowed == frozenset():
        return []
    on_rank = _OnRank(exercise.on_rank)
    return [replace(exercise, cases=cases, on_rank=on_rank, judge=judge)]


@dataclass(frozen=True)
class _OnRank:
    on_rank: Callable[[Callable, Case], Any]

    def __call__(self, answer: Callable, case: Case) -> Told:
        runs = [_run(self.on_rank, answer, each) for each in case.data[_BOTH]]
        (one, ears), (other, ears_then) = runs
        shared = one.keys() & other.keys()
        differs = any(not same(one[key], other[key]) for key in shared)
        messages = ears.messages + ears_then.messages
        return Told(differs, ears.heard, ears_then.heard, messages)


def _run(
    on_rank: Callable[[Callable, Case], Any], answer: Callable, case: Case
) -> tuple[dict[str, Any], "_Ears"]:
    ears = _Ears()
    Recorder.on_arrival(ears)
    try:
        return dict(leaves(on_rank(answer, case))), ears
    finally:
        Recorder.on_arrival(None)


@dataclass
class _Ears:
    """Notes what arrives where the answer's own lines asked for it, and counts messages."""

    heard: list[str] = field(default_factory=list)
    messages: int = 0

    def __call__(self, event: CommEvent, written: list[torch.Tensor]) -> None:
        self.messages += event.op == "recv"
        if event.where and event.op in _WRITES and any(t.numel() for t in written):
            self.heard.append(_digest(written))


def _digest(tensors: list[torch.Tensor]) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        flat = tensor.detach().clone().reshape(-1)  # numpy would pin the answer's own memory
        flat = flat.as_strided(flat.shape, (1,))  # one element that was expanded has a stride of 0
        found.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return found.hexdigest()


def judge(case: Case, observation: Observation) -> Finding | None:
    told: list[Told] = observation.values
    for rank, each in enumerate(told):
        mine = observation.trace.of(rank)
        counted = sum(event.op == "recv" for event in mine)
        if each.messages < counted:
            return Finding(
                f"{counted} messages are counted as received on this rank, and {each.messages} "
                "arrived",
                rank,
            )
    sent = any(each.arrived for each in told)
    if sent and any(t.differs for t in told) and all(t.arrived == t.arrived_then for t in told):
        return Finding(
            "the result is right, but what your ranks send each other is the same whatever the "
            "inputs are: it says nothing of them"
        )
    return None


LAW = Law(variations=variations, applies=lambda contract: contract.causal, essential=True)
