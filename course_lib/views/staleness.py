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

from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course_lib.views.explore import Explorer, explore
from course_lib.views.view import View

COMPUTES, WAITS, STALE = "#0072b2", "#dddddd", "#d55e00"
HORIZON = 40.0  # tasks of a fast worker that are shown
_ROW = 0.3  # inches


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
    height = _ROW * played.workers + 2.2
    figure = Figure(figsize=(9, height))
    figure.text(0.07, 1 - 0.18 / height, _summary(played), fontsize=8, weight="bold")
    top = 0.3 / height
    share = _ROW * played.workers / height
    ax = figure.add_axes((0.07, 1 - top - share, 0.92, share))
    ax.set(xlim=(0, played.horizon), ylim=(played.workers, 0))
    ax.axis("off")
    for boxes, color in (
        ([_box(worker, start, stop) for worker, _, start, stop in played.spans], COMPUTES),
        ([_box(worker, start, stop) for worker, start, stop in played.waits], WAITS),
    ):
        ax.add_collection(
            PolyCollection(boxes, facecolors=color, edgecolors="white", linewidths=0.8)
        )
    for worker in range(played.workers):
        ax.text(-0.3, worker + 0.5, f"worker {worker}", fontsize=8, ha="right", va="center")
    for worker, task, start, stop in played.spans:
        if task % 5 == 0 and stop - start >= 0.8:  # a text takes longer to draw than all boxes
            middle = (start + stop) / 2
            ax.text(
                middle, worker + 0.52, f"{task}", fontsize=6, color="white", ha="center",
                va="center",
            )  # fmt: skip
    counts = Counter(played.staleness)
    most = max(counts, default=0)
    below = figure.add_axes((0.07, 0.42 / height, 0.92, 1.25 / height))
    below.bar(range(most + 1), [counts[s] for s in range(most + 1)], color=STALE)
    below.set_xlabel("staleness: steps between pull and push", fontsize=8)
    below.set_ylabel("pushes", fontsize=8)
    below.tick_params(labelsize=7)
    below.spines[["top", "right"]].set_visible(False)
    patches = [Patch(color=COMPUTES, label="computes"), Patch(color=WAITS, label="waits")]
    figure.legend(handles=patches, loc="upper right", ncols=2, fontsize=8, frameon=False)
    return figure


def _box(worker: int, start: float, stop: float) -> list[tuple[float, float]]:
    low, high = worker + 0.08, worker + 0.92
    return [(start, low), (stop, low), (stop, high), (start, high)]
