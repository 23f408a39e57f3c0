"""A pipeline schedule on devices with given costs: when does each operation run?

    simulate(one_f_one_b(4, 8)).bubble_fraction          -> 0.2727...  = (p-1)/(m+p-1)

An operation starts when its rank is free and what it needs has arrived. Sending takes `send`,
beside the computation (`blocking_sends.py` has the other kind of sending). Costs are in any unit of
time; whole numbers stay whole, so results with unit costs are exact.
"""

import math
from collections.abc import Iterable, Sequence

from course_lib.observe.timeline import COMPUTE, Timeline, Track
from course_lib.techniques.schedules import (
    BACKWARD_WEIGHT,
    FORWARD,
    KINDS,
    Op,
    check_complete,
    check_order,
    num_microbatches,
    num_stages,
)

from .engine import NOTHING, Lane, Run, run

PerStage = float | Iterable[float]


class Costs:
    """Time of each kind of operation on each stage."""

    def __init__(
        self,
        stages: int,
        forward: PerStage,
        backward: PerStage,
        weight: PerStage | None,
        send: float,
    ) -> None:
        whole = _per_stage("backward", backward, stages)
        part = _halves(whole) if weight is None else _per_stage("weight", weight, stages)
        for stage, (all_of_it, weights) in enumerate(zip(whole, part, strict=True)):
            if weights > all_of_it:
                raise ValueError(
                    f"weight = {weights} of stage {stage} is more than its backward = {all_of_it},"
                    " of which it is a part"
                )
        if not 0 <= send < math.inf:
            raise ValueError(f"send = {send} must be a time of 0 or more")
        self.send = send
        self.of = {
            "F": _per_stage("forward", forward, stages),
            "B": whole,
            "I": [a - b for a, b in zip(whole, part, strict=True)],
            "W": part,
        }


class Numbering:
    """Results as numbers, so that the engine needs no objects: F, then B or I, then W."""

    def __init__(self, schedule: Sequence[Sequence[Op]]) -> None:
        self.stages, self.microbatches = num_stages(schedule), num_microbatches(schedule)
        self.block = self.stages * self.microbatches
        self.first = {"F": 0, "B": self.block, "I": self.block, "W": 2 * self.block}
        self.count = 3 * self.block

    def __call__(self, op: Op) -> int:
        kind, stage, microbatch = op
        return self.first[kind] + stage * self.microbatches + microbatch

    def neighbour(self, kind: str, stage: int) -> int:
        """The stage whose result is awaited (F from before, B and I from behind), or NOTHING.

        The rule of `schedules.needs`, without what a rank's own order settles.
        """
        if kind == FORWARD:
            return stage - 1 if stage > 0 else NOTHING
        return stage + 1 if kind != BACKWARD_WEIGHT and stage + 1 < self.stages else NOTHING


def simulate(
    schedule: Sequence[Sequence[Op]],
    forward: PerStage = 1,
    backward: PerStage = 2,
    weight: PerStage | None = None,
    send: float = 0,
) -> Timeline:
    """The timeline of `schedule`, where each operation runs as early as it can.

    forward, backward, weight   one time for all stages, or one for each. `backward` is the whole
                                backward pass; `weight` is the part of it that W takes and I does
                                not, half of it where left out
    send                        from the end of an operation to its result on the next rank

    Raises a ValueError that shows where if the schedule is not valid.
    """
    home = check_complete(schedule)
    number = Numbering(schedule)
    costs = Costs(number.stages, forward, backward, weight, send)
    plan = {kind: _plan(kind, number, costs, home) for kind in KINDS}
    lanes = []
    started = bytearray(number.count)
    for row in schedule:
        lane = Lane()
        tasks, times = lane.tasks.append, lane.seconds.append  # a call of lane.add for each is slow
        needs, lags = lane.needs.append, lane.lags.append
        for kind, stage, microbatch in row:
            first, seconds, shift, lag = plan[kind][stage]
            task = first + microbatch
            tasks(task)
            times(seconds)
            needs(task + shift if shift else NOTHING)
            lags(lag)
            started[task] = 1
            if kind != FORWARD and not started[task - number.block]:
                check_order(schedule)  # raises: B before its own F, or W before its own I
        lanes.append(lane)
    result = run(lanes, number.count)
    if result.stuck:
        check_order(schedule)  # raises: it finds the same circle, and says it in words
    return timeline_of(schedule, lanes, result)


def timeline_of(schedule: Sequence[Sequence[Op]], lanes: Sequence[Lane], result: Run) -> Timeline:
    """One compute track a rank."""
    tracks = [
        Track(
            rank,
            COMPUTE,
            list(map(result.starts.__getitem__, lane.tasks)),
            list(map(result.ends.__getitem__, lane.tasks)),
            row,
        )
        for rank, (row, lane) in enumerate(zip(schedule, lanes, strict=True))
    ]
    return Timeline(len(schedule), tracks)


def _plan(
    kind: str, number: Numbering, costs: Costs, home: dict[int, int]
) -> list[tuple[int, float, int, float]]:
    """By stage: number of microbatch 0, time, how far its neighbour's number is (0: none), lag."""
    plan: list[tuple[int, float, int, float]] = []
    for stage in range(number.stages):
        first = number(Op(kind, stage, 0))
        other = number.neighbour(kind, stage)
        if other == NOTHING:
            plan.append((first, costs.of[kind][stage], 0, 0))
        else:
            shift = (other - stage) * number.microbatches
            lag = costs.send if home[other] != home[stage] else 0
            plan.append((first, costs.of[kind][stage], shift, lag))
    return plan


def _per_stage(name: str, value: PerStage, stages: int) -> list[float]:
    """One cost for each stage, all of them times."""
    costs = list(value) if isinstance(value, Iterable) else [value] * stages
    if len(costs) != stages:
        raise ValueError(f"{name} has {len(costs)} costs for {stages} stages")
    for stage, cost in enumerate(costs):
        if not 0 <= cost < math.inf:
            raise ValueError(f"{name} = {cost} of stage {stage} must be a time of 0 or more")
    return costs


def _halves(whole: Sequence[float]) -> list[float]:
    """Half of each, still a whole number where it can be."""
    return [cost // 2 if cost % 2 == 0 else cost / 2 for cost in whole]
