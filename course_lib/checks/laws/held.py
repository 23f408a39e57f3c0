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
        self.on_rank(_labelled(answer), case)


def _labelled(function: Callable) -> Callable:
    def call(*args: Any, **kwargs: Any) -> Any:
        with record_function(_ANSWER):
            returned = function(*args, **kwargs)
        return _with_labels(returned)

    return call


def _with_labels(returned: Any) -> Any:
    if type(returned) in (list, tuple):
        return type(returned)(_with_labels(item) for item in returned)
    return _labelled(returned) if _is_function(returned) else returned


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
        for end in sorted(label.end for label in labels if label.name == _ANSWER):
            alive = sum(_size_at(block, end) for block in ours)
            if alive > most + _SLACK:
                return Finding(
                    "the result is right, but between calls more is kept in memory than is due: "
                    "something keeps a whole tensor alive, such as a view of it, a list, or a "
                    "gradient that was not dropped",
                    rank,
                    expected=f"at most {most} bytes, for what has to stay",
                    got=f"{alive} bytes in {len(list(_alive(ours, end)))} tensors",
                )
    return None


def _made_by_answer(block: Block, labels: list[Label]) -> bool:
    began = block.steps[0][0]
    spans = [label for label in labels if label.name in (_ANSWER, BACKWARD)]
    return any(span.start <= began <= span.end for span in spans)


def _alive(blocks: list[Block], time: float) -> Iterator[Block]:
    return (block for block in blocks if _size_at(block, time))


def _size_at(block: Block, time: float) -> int:
    sizes = [nbytes for when, nbytes, _ in block.steps if when <= time]
    return sizes[-1] if sizes else 0


LAW = Law(variations=variations, applies=lambda contract: contract.held is not None)
