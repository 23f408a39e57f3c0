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

from course_lib.text import counted

from .charts import Field, round_numbers, whole_numbers
from .palette import PAPER, WAITS, Fill
from .svg_drawing import SMALL, WIDTH, Picture, width
from .view import View
from .widgets import Control, Explorer, explore

_FILLS = {"computes": Fill("#0072b2", ink=PAPER), "waits": WAITS}
_STALE = Fill("#d55e00")
HORIZON = 40.0  # tasks of a fast worker that are shown
_ALL, _MOST = 232, 58  # pixels that workers share, and of one at most


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
    settings = _settings(slowest, bound, randomness)
    return View(_draw(played, settings), _text(played, settings))


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
        height=500,
        workers=[1, 2, 3, 4, 6, 8],
        slowest=Control([1, 1.5, 2, 4, 8], "worker 0 is slower by", "×"),
        bound=Control(
            [0, 1, 2, 4, 8, 16, math.inf],
            "bound: lead over the slowest",
            names={0: "0 tasks (sequential)", math.inf: "none (eventual)"},
        ),
        randomness=Control(
            [0.0, 0.5, 1.0, 3.0],
            "tasks take longer by up to",
            names={0.0: "nothing", 0.5: "50 %", 1.0: "100 %", 3.0: "300 %"},
        ),
    )


# ------------------------------------------------------------------------------------------------


def _summary(played: Play) -> str:
    mean = sum(played.staleness) / len(played.staleness) if played.staleness else 0.0
    return (
        f"{len(played.staleness)} pushes in {played.horizon:g} units of time, workers wait "
        f"{played.idle_fraction:.0%} of it, staleness {mean:.1f} on average and "
        f"{max(played.staleness, default=0)} at most"
    )


def _name(bound: float) -> str:
    names = {0: "sequential (bound 0)", math.inf: "eventual (no bound)"}
    return names.get(bound, f"bounded delay (bound {bound:g})")


def _settings(slowest: float, bound: float, randomness: float) -> str:
    """What was chosen: "bounded delay, 2; worker 0 slower by 4x"."""
    words = [_name(bound), f"worker 0 {slowest:g}x slower" if slowest != 1 else "equal workers"]
    if randomness:
        words.append(f"tasks up to {randomness:.0%} longer")
    return ", ".join(words)


def _text(played: Play, settings: str) -> str:
    lines = [f"{settings}: {_summary(played)}"]
    lines += [
        f"worker {worker}: {counted(tasks, 'task')}" for worker, tasks in enumerate(played.finished)
    ]
    lines.append("staleness: pushes")
    lines += [f"{stale:9}: {n}" for stale, n in sorted(Counter(played.staleness).items())]
    return "\n".join(lines)


def _draw(played: Play, settings: str) -> Picture:
    picture = Picture(f"{settings}: {_summary(played)}")
    tall = min(_MOST, _ALL / played.workers)
    left, top = 84, picture.height + 4
    pixels = (WIDTH - 14 - left) / played.horizon
    for worker in range(played.workers):
        y = top + worker * tall
        picture.text(left - 8, y + tall / 2, f"worker {worker}", SMALL, "end")
    for worker, start, stop in played.waits:
        hint = f"worker {worker} waits\n{start:.3g} to {stop:.3g}"
        position = left + start * pixels, top + worker * tall + tall / 3
        wide = (stop - start) * pixels
        picture.box(*position, wide, tall / 3, _FILLS["waits"], hint, key="waits")
    for worker, task, start, stop in played.spans:
        hint = f"worker {worker}, task {task}\n{start:.3g} to {stop:.3g}"
        x, wide = left + start * pixels, (stop - start) * pixels
        word = str(task) if width(str(task), SMALL) < wide - 3 else ""
        picture.box(
            x, top + worker * tall + 2, wide - 1, tall - 4, _FILLS["computes"], hint, word,
            key="computes",
        )  # fmt: skip
    bottom = top + tall * played.workers
    time = Field(picture, left, top, WIDTH - 14 - left, bottom - top, (0, played.horizon), (0, 1))
    marks = round_numbers(0, played.horizon, 8, "{:g}".format)
    time.marks_below(marks, "time; a fast worker takes 1 unit for a task")
    picture.player(left, time.right, top, bottom, f"{played.horizon:g} units")
    picture.key({"computes; the number is the task": _FILLS["computes"], "waits": _FILLS["waits"]})
    counts = Counter(played.staleness)
    most, highest = max(counts, default=0), 1.1 * max(counts.values(), default=1)
    across, room = (-0.6, max(most, 9) + 0.6), WIDTH - 14 - left
    below = Field(picture, left, picture.height + 30, room, 110, across, (0, highest))
    below.marks_left(whole_numbers(0, highest, 4), "pushes", grid=True)
    for stale, count in counts.items():
        x, y = below.across(stale - 0.4), below.up(count)
        wide = below.across(stale + 0.4) - x
        hint = f"staleness {stale}: {count} pushes"
        picture.box(x, y, wide, below.bottom - y, _STALE, hint, key="")
    below.marks_below(whole_numbers(0, max(most, 9), 10), "staleness: steps between pull and push")
    return picture
