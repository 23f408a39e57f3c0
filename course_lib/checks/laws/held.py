"""Between calls nothing is held but what the contract allows: all storages count, each once.

Not only `.grad` and the optimizer's state: a shard that is a view keeps the whole row alive, and so
does a list in a closure. So one case is run with its memory recorded. Counted is what came to be
while the answer ran or in a backward pass, and still lives when the answer, or a function that it
returned, has come back.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from torch import nn
from torch.profiler import record_function

from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.observe import Block, Label

from ._law import Law

BACKWARD = "check: backward"  # what exercises put around loss.backward()
_ANSWER = "check: answer"
_SLACK = 64  # bytes: step counters, and numbers such as a norm


def variations(exercise: Exercise) -> list[Exercise]:
    held = exercise.contract.held
    assert held is not None, "the law does not apply"

    def cases(rng: random.Random) -> list[Case]:
        drawn = exercise.cases(rng)
        return [case for case in drawn if case.world_size > 1][:1] or drawn[-1:]

    def judge(case: Case, observation: Observation) -> Finding | None:
        return _judge(held, case, observation)

    on_rank = _OnRank(exercise.on_rank)
    free = replace(exercise.contract, allowed=None)
    return [
        replace(
            exercise, cases=cases, on_rank=on_rank, judge=judge, contract=free, observe="memory"
        )
    ]


@dataclass(frozen=True)
class _OnRank:
    """The case as it is, with a label around each call of the answer and of what it returned."""

    on_rank: Callable[[Callable, Case], Any]

    def __call__(self, answer: Callable, case: Case) -> None:
        self.on_rank(_labelled(answer, _ANSWER), case)


def _labelled(function: Callable, name: str) -> Callable:
    def call(*args: Any, **kwargs: Any) -> Any:
        with record_function(name):
            returned = function(*args, **kwargs)
        return _with_labels(returned, name)

    return call


def _with_labels(returned: Any, name: str) -> Any:
    """Functions in what was returned, each with a label of its own: its place in it."""
    if type(returned) in (list, tuple):
        return type(returned)(_with_labels(x, f"{name}, {i}") for i, x in enumerate(returned))
    return _labelled(returned, f"{name}, returned") if _is_function(returned) else returned


def _is_function(value: Any) -> bool:
    """Or an object that is called like one; a module is kept as it is."""
    return callable(value) and not isinstance(value, type | nn.Module)


def _judge(due: Callable[[Case, int], int], case: Case, observation: Observation) -> Finding | None:
    trace = observation.trace
    for rank in range(case.world_size):
        labels = [label for label in trace.labels if label.rank == rank]
        blocks = [block for block in trace.blocks if block.rank == rank]
        ours = [block for block in blocks if _made_by_answer(block, labels)]
        most = due(case, rank)
        for kept in _kept_by_function(ours, labels):
            if sum(kept) > most + _SLACK:
                return Finding(
                    "the result is right, but between calls more is kept in memory than is due: "
                    "something keeps a whole tensor alive, such as a view of it, a list, or a "
                    "gradient that was not dropped",
                    rank,
                    expected=f"at most {most} bytes, for what has to stay",
                    got=f"{sum(kept)} bytes in {len(kept)} tensors",
                )
    return None


def _kept_by_function(ours: list[Block], labels: list[Label]) -> Iterator[list[int]]:
    """Sizes of what lives on after a function's calls: after the one that leaves least."""
    after: dict[str, list[list[int]]] = {}
    for label in labels:
        if label.name.startswith(_ANSWER):
            sizes = [_size_at(block, label.end) for block in ours]
            after.setdefault(label.name, []).append([size for size in sizes if size])
    for kept in after.values():
        yield min(kept, key=sum)


def _is_marked(label: Label) -> bool:
    return label.name == BACKWARD or label.name.startswith(_ANSWER)


def _made_by_answer(block: Block, labels: list[Label]) -> bool:
    began = block.steps[0][0]
    return any(_is_marked(label) and label.start <= began <= label.end for label in labels)


def _size_at(block: Block, time: float) -> int:
    sizes = [nbytes for when, nbytes, _ in block.steps if when <= time]
    return sizes[-1] if sizes else 0


LAW = Law(variations=variations, applies=lambda contract: contract.held is not None)
