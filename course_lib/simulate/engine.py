"""The discrete-event engine: lanes of tasks, each waiting for its lane and for one other task.

A lane is whatever does one thing at a time: a device's compute units, a link, a communicator. Its
tasks run in the order given, each as early as it can:

    start = max(end of the task before it in the lane, end of the task it needs + lag)

There is no clock that ticks. A lane is a coroutine: it runs until it needs an end that is not known
yet, sleeps until that end is, and goes on; so the cost is linear in the number of tasks. Tasks are
plain numbers and lanes are columns, because half a million Python objects would take longer to
create than to simulate.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

NEVER = -1.0  # the start and end of a task that has not run; times are not negative
NOTHING = -1  # the need of a task that waits only for its lane


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
    """Start and end by task number, NEVER for what did not run; the lanes that could not go on."""

    starts: list[float]
    ends: list[float]
    stuck: list[Stuck]


def run(lanes: Sequence[Lane], tasks: int) -> Run:
    """Play all lanes to their ends, or until none can go on; tasks are numbered range(tasks)."""
    starts: list[float] = [NEVER] * tasks
    ends: list[float] = [*starts, 0]  # the last one is the end of NOTHING
    sleeping: dict[int, list[int]] = {}  # task -> lanes that wait for its end
    awake = list(range(len(lanes)))

    def play(lane: Lane) -> Iterator[int]:
        """Give out what the lane must wait for; to be resumed when that has an end."""
        now: float = 0
        for task, seconds, need, lag in zip(
            lane.tasks, lane.seconds, lane.needs, lane.lags, strict=True
        ):
            if ends[need] == NEVER:
                yield need
            ready = ends[need] + lag
            if ready > now:
                now = ready
            starts[task] = now
            now += seconds
            ends[task] = now
            if task in sleeping:
                awake.extend(sleeping.pop(task))

    playing = [play(lane) for lane in lanes]
    while awake:
        number = awake.pop()
        need = next(playing[number], None)
        if need is not None:
            sleeping.setdefault(need, []).append(number)
    stuck = sorted(
        Stuck(number, next(task for task in lanes[number].tasks if starts[task] == NEVER), need)
        for need, waits in sleeping.items()
        for number in waits
    )
    return Run(starts, ends[:-1], stuck)
