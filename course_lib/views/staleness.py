"""Workers of different speeds under a bound: who computes, who waits, how stale the pushes are.

A worker starts its next task when it leads the slowest by at most `bound` tasks (bounded delay; 0
is sequential, infinity eventual). The staleness of a push is the number of steps that the server
has taken since the worker pulled. Sequential, all pushes of a round are one step, so it is 0.
"""

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from matplotlib.figure import Figure

from .areas import area, boxes, key
from .explore import Explorer, explore
from .lettering import letter, width
from .palette import PAPER, Fill
from .scales import round_numbers, scale_x, scale_y
from .view import View

_FILLS = {"computes": Fill("#0072b2", ink=PAPER), "waits": Fill("#dddddd")}
_STALE = Fill("#d55e00")
HORIZON = 40.0  # tasks of a fast worker that are shown
_WIDTH, _ROW, _SHARE = 9.0, 0.3, 0.92  # inches, inches, and what of the width is time


@dataclass
class Play:
    """What happened until the horizon.

    spans: (worker, task, start, stop) of all that was computed, also of what was cut off there.
    waits: (worker, start, stop). leads: at every start. finished: tasks by worker. staleness: of
        every push, in order.
    """

    workers: int
    horizon: float
    spans: list[tuple[int, int, float, float]] = field(default_factory=list)
    waits: list[tuple[int, float, float]] = field(default_factory=list)
    finished: list[int] = field(default_factory=list)
    staleness: list[int] = field(default_factory=list)
    leads: list[int] = field(default_factory=list)

    @property
    def idle_fraction(self) -> float:
        """Share of all the workers' time that was spent waiting."""
        return sum(stop - start for _, start, stop in self.waits) / (self.workers * self.horizon)


def play(
    workers: int, bound: float, duration: Callable[[int, int], float], horizon: float = HORIZON
) -> Play:
    """Run workers whose task t takes duration(worker, t) until `horizon`."""
    finished, version = [0] * workers, 0
    played = Play(workers, horizon, finished=finished)
    pulled = [0] * workers  # version with which each computes
    asking = dict.fromkeys(range(workers), 0.0)  # worker -> since when it waits
    running: list[tuple[float, int]] = []  # (end, worker)
    now = 0.0
    while now < horizon:
        for worker in [w for w in asking if finished[w] - min(finished) <= bound]:
            since = asking.pop(worker)
            if since < now:
                played.waits.append((worker, since, now))
            stop = now + duration(worker, finished[worker])
            played.spans.append((worker, finished[worker], now, min(stop, horizon)))
            played.leads.append(finished[worker] - min(finished))
            pulled[worker] = version
            heapq.heappush(running, (stop, worker))
        now, worker = heapq.heappop(running)
        if now > horizon:
            break
        finished[worker] += 1
        played.staleness.append(0 if bound == 0 else version - pulled[worker])
        version += 1
        asking[worker] = now
    played.waits += [(worker, since, horizon) for worker, since in asking.items()]
    return played


def staleness(
    workers: int = 4, slowest: float = 4, bound: float = 2, randomness: float = 0.0
) -> View:
    """Workers 1 to n - 1 take 1 for a task and worker 0 takes `slowest`.

    randomness: a task takes up to so many times longer, drawn anew (and alike) for each.
    """
    played = play(workers, bound, durations(slowest, randomness))
    return View(_draw(played), _text(played, bound))


def durations(slowest: float, randomness: float) -> Callable[[int, int], float]:
    """Seconds, or any unit, of a task: the same for the same worker and task."""

    def duration(worker: int, task: int) -> float:
        drawn = random.Random(f"{worker}/{task}").random()
        return (slowest if worker == 0 else 1.0) * (1 + randomness * drawn)

    return duration


def staleness_explorer() -> Explorer:
    """`staleness` under sliders."""
    return explore(
        staleness,
        workers=[1, 2, 3, 4, 6, 8],
        slowest=[1, 1.5, 2, 4, 8],
        bound=[0, 1, 2, 4, 8, 16, math.inf],
        randomness=[0.0, 0.5, 1.0, 3.0],
    )


# ------------------------------------------------------------------------------------------------


def _summary(played: Play) -> str:
    mean = sum(played.staleness) / len(played.staleness) if played.staleness else 0.0
    return (
        f"{len(played.staleness)} pushes in {played.horizon:g} units of time, "
        f"{played.idle_fraction:.1%} of it spent waiting, staleness {mean:.1f} on average and "
        f"{max(played.staleness, default=0)} at most"
    )


def _name(bound: float) -> str:
    names = {0: "sequential (bound 0)", math.inf: "eventual (no bound)"}
    return names.get(bound, f"bounded delay, {bound:g}")


def _text(played: Play, bound: float) -> str:
    lines = [f"{_name(bound)}: {_summary(played)}"]
    lines += [f"worker {worker}: {tasks} tasks" for worker, tasks in enumerate(played.finished)]
    lines.append("staleness: pushes")
    lines += [f"{stale:9}: {n}" for stale, n in sorted(Counter(played.staleness).items())]
    return "\n".join(lines)


def _draw(played: Play) -> Figure:
    height = _ROW * played.workers + 2.5
    figure = Figure(figsize=(_WIDTH, height))
    figure.text(0.07, 1 - 0.18 / height, _summary(played), fontsize=8, weight="bold")
    share = _ROW * played.workers / height
    ax = figure.add_axes((0.07, 1 - 0.3 / height - share, _SHARE, share))
    ax.set(xlim=(0, played.horizon), ylim=(played.workers, 0))
    ax.axis("off")
    for name, rows in (("computes", [(w, a, b) for w, _, a, b in played.spans]),
                       ("waits", played.waits)):  # fmt: skip
        workers, starts, stops = np.array(rows or np.empty((0, 3))).T
        area(ax, boxes(starts, workers + 0.08, stops - starts, 0.84), _FILLS[name], edge=0.8)
    names = {worker + 0.5: f"worker {worker}" for worker in range(played.workers)}
    scale_y(ax, names, size=8, ticks=False)
    letter(
        ax,
        [
            ((start + stop) / 2, worker + 0.5, str(task), PAPER)
            for worker, task, start, stop in played.spans
            if (stop - start) / played.horizon * _WIDTH * _SHARE * 72 > width(str(task), 6) + 2
        ],
        size=6,
    )
    counts = Counter(played.staleness)
    most, highest = max(counts, default=0), 1.05 * max(counts.values(), default=1)
    below = figure.add_axes((0.07, 0.75 / height, _SHARE, 1.2 / height))
    bars = boxes(np.arange(most + 1) - 0.4, 0, 0.8, [counts[s] for s in range(most + 1)])
    area(below, bars, _STALE)
    below.set(xlim=(-0.6, most + 0.6), ylim=(0, highest))
    below.spines[["top", "right"]].set_visible(False)
    scale_x(below, _whole(most, 10), "staleness: steps between pull and push")
    scale_y(below, _whole(highest, 5), "pushes")
    key(figure, _FILLS)
    return figure


def _whole(highest: float, most: int) -> dict[float, str]:
    """Marks at whole numbers: nobody pushes half a time."""
    marks = round_numbers(0, highest, most, "{:g}".format)
    return {place: text for place, text in marks.items() if place.is_integer()}
