"""Between calls nothing is held but what the contract allows: all storages count, each once.

Not only `.grad` and the optimizer's state: a shard that is a view keeps the whole row alive, and so
does a list in a closure. So one case is run with its memory recorded. Counted is what came to be
while the answer ran or in a backward pass, and still lives when the answer, or a function that it
returned, has come back.

A thread of gloo lets go of what it sent a moment after the call has returned, so a call is over
when all other threads of its process sleep.
"""

import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn
from torch.profiler import record_function

from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.profiler_labels import BACKWARD
from course_lib.observe import Block, Label

from ._law import Law

_ANSWER = "check: answer"
_OURS = (_ANSWER, BACKWARD)
_THREADS = Path("/proc/self/task")
_BETWEEN_LOOKS, _A_WHILE, _PATIENCE = 0.001, 0.05, 1.0  # seconds
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
            _until_threads_sleep()
        return _with_labels(returned)

    return call


def _with_labels(returned: Any) -> Any:
    """Functions in what was returned, each with a label as well."""
    if type(returned) in (list, tuple):
        return type(returned)(_with_labels(each) for each in returned)
    return _labelled(returned) if _is_function(returned) else returned


def _until_threads_sleep() -> None:
    """Twice in a row, since one that has been woken up may not run yet; a second at most."""
    if not _THREADS.exists():  # not Linux
        time.sleep(_A_WHILE)
        return
    asleep, end = 0, time.monotonic() + _PATIENCE
    while asleep < 2 and time.monotonic() < end:
        time.sleep(_BETWEEN_LOOKS)
        asleep = asleep + 1 if all(map(_sleeps, _THREADS.iterdir())) else 0


def _sleeps(thread: Path) -> bool:
    if int(thread.name) == threading.get_native_id():
        return True
    with contextlib.suppress(OSError):  # it has ended meanwhile
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] == "S"
    return True


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
        for kept in _kept_after_calls(ours, labels):
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


def _kept_after_calls(ours: list[Block], labels: list[Label]) -> Iterator[list[int]]:
    """Sizes of what lives on after each call."""
    for label in labels:
        if label.name == _ANSWER:
            sizes = (_size_at(block, label.end) for block in ours)
            yield [size for size in sizes if size]


def _made_by_answer(block: Block, labels: list[Label]) -> bool:
    began = block.steps[0][0]
    return any(label.start <= began <= label.end for label in labels if label.name in _OURS)


def _size_at(block: Block, time: float) -> int:
    sizes = [nbytes for when, nbytes, _ in block.steps if when <= time]
    return sizes[-1] if sizes else 0


LAW = Law(variations=variations, applies=lambda contract: contract.held is not None)
