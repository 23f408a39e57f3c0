"""Variations that need the same number of ranks go through one launch of them.

To start ranks is half of what a run costs. What may come to no result comes last; where it takes
the others' results with it, those are run again by themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch.distributed as dist
from torch.profiler import record_function

from .exercise import Case, Exercise, Finding, Observation
from .run_answer import Job, part_of

_PART = "check: part {}"


@dataclass(frozen=True)
class Launch:
    """A job; and those to run, each in ranks of its own, if it comes to no result where it may."""

    job: Job
    apart: tuple[Job, ...] = ()


def launches(jobs: Sequence[Job]) -> list[Launch]:
    """The jobs, each of one case, those of one world size and one way to observe in one launch.

    What needs a fresh rank says why it was run, so it is by itself.
    """
    kinds: dict[object, list[Job]] = {}
    for job in jobs:
        kind = id(job) if job.fresh else (job.world_size, job.exercise.observe)
        kinds.setdefault(kind, []).append(job)
    return [_launch(group) for group in kinds.values()]


def _launch(jobs: list[Job]) -> Launch:
    if len(jobs) == 1:
        return Launch(jobs[0])
    exercises = [job.exercise for job in jobs]
    (first, *_), parts = exercises, [job.cases[0] for job in jobs]
    order = sorted(range(len(jobs)), key=lambda index: jobs[index].may_fail)
    shared = replace(
        first,
        on_rank=_OneByOne(tuple(exercise.on_rank for exercise in exercises), tuple(order)),
        judge=lambda case, observation: _judge(exercises, parts, observation),
        contract=replace(first.contract, allowed=None),
    )
    case = Case(jobs[0].world_size, parts[0].label, {"parts": tuple(parts)})
    may_fail = any(job.may_fail for job in jobs)
    apart = tuple(job for job in jobs if not job.may_fail) if may_fail else ()
    return Launch(Job(shared, (case,), may_fail=may_fail), apart)


@dataclass(frozen=True)
class _OneByOne:
    """What each part runs on a rank, and the order in which they are run."""

    on_ranks: tuple[Callable[[Callable, Case], Any], ...]
    order: tuple[int, ...]

    def __call__(self, answer: Callable, case: Case) -> list[Any]:
        values: dict[int, Any] = {}
        for index in self.order:
            if values:
                dist.barrier()  # a message from anybody must not be one of the next part
            with record_function(_PART.format(index)):
                values[index] = self.on_ranks[index](answer, case.data["parts"][index])
        return [values[index] for index in range(len(self.on_ranks))]


def _judge(
    exercises: Sequence[Exercise], parts: Sequence[Case], observation: Observation
) -> Finding | None:
    for index, (exercise, part) in enumerate(zip(exercises, parts, strict=True)):
        own = Observation(
            [values[index] for values in observation.values],
            part_of(observation.trace, _PART.format(index)),
        )
        if finding := exercise.judge(part, own):
            return finding
    return None
