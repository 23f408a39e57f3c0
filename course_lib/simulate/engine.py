"""The discrete-event engine: lanes of tasks, each waiting for its lane and for one other task.

A lane is whatever does one thing at a time: a device's compute units, a link, a communicator. Its
tasks run in the order given, each as early as it can:

    start = max(end of the task before it in the lane, end of the task it needs + lag)

There is no clock that ticks. A lane runs until it needs an end that is not known yet, and sleeps
until that end is; so the cost is linear in the number of tasks. Tasks are plain numbers and lanes
are columns, because half a million Python objects would take longer to create than to simulate.
"""

from collections.abc import Sequence
from typing import NamedTuple

NOTHING = -1  # the need of a task that waits for its lane alone


class Lane:
    """Tasks in order; `needs` and `lags` say which end each waits for, and how long after it."""

    __slots__ = ("lags", "needs", "seconds", "tasks")

    def __init__(self) -> None:
        self.tasks: list[int] = []
        self.seconds: list[float] = []
        self.needs: list[int] = []
        self.lags: list[float] = []

    def add(self, task: int, seconds: float, need: int = NOTHING, lag: float = 0) -> None:
        """Append a task. One that needs several others comes after pauses that need one each."""
        self.tasks.append(task)
        self.seconds.append(seconds)
        self.needs.append(need)
        self.lags.append(lag)


class Stuck(NamedTuple):
    """Lane number `lane` cannot start `task`, since `need` never ends."""

    lane: int
    task: int
    need: int


class Run(NamedTuple):
    """Start and end by task number, None for what never ran; the lanes that could not go on."""

    starts: list[float | None]
    ends: list[float | None]
    stuck: list[Stuck]


def run(lanes: Sequence[Lane], tasks: int) -> Run:
    """Play all lanes to their ends, or until none can go on; tasks are numbered range(tasks)."""
    starts: list[float | None] = [None] * tasks
    ends: list[float | None] = [*starts, 0]  # the last one is the end of NOTHING
    free: list[float] = [0] * len(lanes)
    position = [0] * len(lanes)
    sleeping: dict[int, list[int]] = {}  # task -> lanes that wait for it
    awake = list(range(len(lanes)))
    while awake:
        number = awake.pop()
        lane, now = lanes[number], free[number]
        names, seconds, needs, lags = lane.tasks, lane.seconds, lane.needs, lane.lags
        for place in range(position[number], len(names)):
            ready = ends[needs[place]]
            if ready is None:
                sleeping.setdefault(needs[place], []).append(number)
                position[number] = place
                break
            ready += lags[place]
            if ready > now:
                now = ready
            task = names[place]
            starts[task] = now
            now += seconds[place]
            ends[task] = now
            if task in sleeping:
                awake += sleeping.pop(task)
        free[number] = now
    stuck = sorted(
        Stuck(number, lanes[number].tasks[position[number]], need)
        for need, waits in sleeping.items()
        for number in waits
    )
    return Run(starts, ends[:-1], stuck)
