"""Rows on their way from ranks to experts, and how the load of each expert goes from step to step.

A step is a table: `table[rank][expert]` is how many rows that rank's tokens send to that expert. Of
N rows in a step each of E experts has room for ceil(factor N / E); what is above is dropped.
"""

import math
from collections.abc import Mapping, Sequence

from course_lib.text import table

from .charts import Field
from .palette import QUIET, RANKS, shade
from .svg_drawing import SMALL, WIDTH, Picture
from .view import View
from .widgets import Control, Explorer, explore

Step = Sequence[Sequence[int]]
Runs = Mapping[str, Sequence[Step]]
_SERVED, _DROPPED = QUIET, QUIET._replace(hatch="//")  # the colours are those of ranks
_HIGH, _FLOWS, _BARS = 176, 236, 300  # pixels: of the upper part, and where it is cut
_CELL, _STRIP = 13, 80  # pixels of an expert's line below, and where its boxes begin


def expert_loads(
    runs: Runs, run: str = "", step: int = 0, factor: float = math.inf, every: int = 1
) -> View:
    """One step from ranks to experts, and below it the loads of all steps of each run.

    runs: by name, tables of one shape. run: the name of that which is shown; the first, if it is
    left out. step: its number among its tables. factor: of the capacity; none if inf.
    every: training steps from one table to the next.
    """
    run = run or next(iter(runs))
    steps = runs[run]
    if not 0 <= step < len(steps):
        raise ValueError(f"there are steps 0 to {len(steps) - 1}, and not {step}")
    ranks, experts = len(steps[step]), len(steps[step][0])
    if not 1 <= ranks <= len(RANKS):
        raise ValueError(f"1 to {len(RANKS)} ranks can be told apart, not {ranks}")
    if not factor > 0:
        raise ValueError(f"a capacity factor is more than 0, not {factor}")
    loads = {name: [_loads(each) for each in own] for name, own in runs.items()}
    here = loads[run][step]
    total = max(sum(here), 1)
    room = math.ceil(factor * total / experts) if factor < math.inf else total
    title = f"{run}, {_title(here, every * step, factor, room)}"
    picture = _draw(steps[step], here, room, title)
    for name, own in loads.items():
        _history(picture, name, own, step if name == run else None, every)
    _axis(picture, max(map(len, loads.values())), every)
    return View(picture, _text(here, room, title))


def expert_explorer(runs: Runs, every: int = 1) -> Explorer:
    """`expert_loads` under sliders, beginning with the last step of the first run.

    runs: by name, each with as many steps as the others. every: training steps from one to the
    next.
    """
    lengths = {len(steps) for steps in runs.values()}
    if len(lengths) != 1:
        raise ValueError(f"runs of {' and '.join(map(str, sorted(lengths)))} steps: one is asked")
    numbers = [every * k for k in range(lengths.pop())]

    def drawn(run: str = next(iter(runs)), step: int = numbers[-1], factor: float = 1.25) -> View:
        return expert_loads(runs, run, step // every, factor, every)

    return explore(
        drawn,
        run=Control(list(runs), "training run"),
        step=numbers,
        factor=Control(
            [1.0, 1.25, 1.5, 2.0, math.inf], "capacity factor", names={math.inf: "none"}
        ),
    )


# ------------------------------------------------------------------------------------------------


def _loads(step: Step) -> list[int]:
    return [sum(column) for column in zip(*step, strict=True)]


def _title(loads: Sequence[int], step: int, factor: float, room: int) -> str:
    total, most = max(sum(loads), 1), max(loads)
    busiest = f"the busiest expert has {most / total:.0%}"
    busiest += f", {most * len(loads) / total:.1f} times its share"
    if factor == math.inf:
        return f"step {step}: {busiest}"
    lost = sum(max(load - room, 0) for load in loads) / total
    return f"step {step}: {busiest}; factor {factor:g} drops {lost:.0%}"


def _text(loads: Sequence[int], room: int, title: str) -> str:
    rows = [["expert", "rows", "dropped"]]
    rows += [[str(e), str(load), str(max(load - room, 0))] for e, load in enumerate(loads)]
    return "\n".join([title, table(rows)])


def _draw(step: Step, loads: Sequence[int], room: int, title: str) -> Picture:
    picture = Picture(title)
    top = picture.height + 22
    _flows(picture, step, top)
    _bars(picture, loads, room, top)
    picture.height = top + _HIGH + 12
    picture.key({"served": _SERVED, "dropped": _DROPPED})
    return picture


def _flows(picture: Picture, step: Step, top: float) -> None:
    """A line from each rank to each expert, as thick as there are rows."""
    ranks, experts = len(step), len(step[0])
    most = max(max(row) for row in step) or 1
    picture.text(4, top - 12, "rows from the tokens of", SMALL, ink="soft")
    for rank, row in enumerate(step):
        y = _middle(top, rank, ranks)
        for expert, count in enumerate(row):
            if count:
                ends = [(74.0, y), (_FLOWS, _middle(top, expert, experts))]
                hint = f"rank {rank} to expert {expert}: {count} rows"
                picture.line(ends, RANKS[rank].color, 0.5 + 7 * count / most, hint=hint)
    for rank, row in enumerate(step):
        y = _middle(top, rank, ranks)
        hint = f"rank {rank}: {sum(row)} rows"
        picture.box(10, y - 11, 64, 22, RANKS[rank], hint, f"rank {rank}")


def _bars(picture: Picture, loads: Sequence[int], room: int, top: float) -> None:
    """What each expert gets, and what is above its capacity."""
    experts, most = len(loads), max(max(loads), 1)
    wide, high = WIDTH - _BARS - 60, min(22.0, _HIGH / experts - 3)
    pixels = wide / most
    picture.text(_BARS, top - 12, "rows for each expert", SMALL, ink="soft")
    for expert, load in enumerate(loads):
        y = _middle(top, expert, experts)
        served = min(load, room)
        picture.text(_BARS - 8, y, f"expert {expert}", SMALL, "end")
        picture.box(
            _BARS, y - high / 2, served * pixels, high, _SERVED,
            f"expert {expert}: {served} rows served", key="served",
        )  # fmt: skip
        if load > room:
            picture.box(
                _BARS + served * pixels, y - high / 2, (load - room) * pixels, high, _DROPPED,
                f"expert {expert}: {load - room} rows dropped", key="dropped",
            )  # fmt: skip
        picture.text(_BARS + load * pixels + 6, y, str(load), SMALL)
    if room <= most:
        x = _BARS + room * pixels
        picture.line([(x, top - 4), (x, top + _HIGH)], "alarm", 1.5, "6 4")
        words = f"capacity {room}"
        picture.text(min(x, WIDTH - 40), top + _HIGH + 8, words, SMALL, "middle", ink="alarm")


def _history(
    picture: Picture, name: str, loads: Sequence[Sequence[int]], step: int | None, every: int
) -> None:
    """A line for each expert, a box for each step, the stronger the more rows; `step` framed."""
    experts, top = len(loads[0]), picture.height + 18
    wide = (WIDTH - _STRIP - 12) / len(loads)
    words = f"{name}: each expert's share of the rows, the more the stronger"
    picture.text(4, top - 7, words, SMALL, bold=step is not None)
    for expert in range(experts):
        y = top + 5 + expert * _CELL
        picture.text(_STRIP - 8, y + _CELL / 2, f"expert {expert}", 10, "end")
        for number, each in enumerate(loads):
            share = each[expert] / max(sum(each), 1)
            hint = f"{name}, step {every * number}: expert {expert} has {share:.1%}"
            left, gap = _STRIP + number * wide, 1 if wide > 4 else 0
            # Three times an even share is as strong as it gets
            fill = shade(min(share * experts / 3, 1.0))
            picture.box(left, y, wide - gap, _CELL - 1, fill, hint, key="share")
    picture.height = top + 5 + experts * _CELL
    if step is not None:
        left, low = _STRIP + step * wide, picture.height
        corners = [(left, top + 4), (left + wide, top + 4), (left + wide, low), (left, low)]
        picture.line([*corners, corners[0]], "alarm", 2)


def _axis(picture: Picture, steps: int, every: int) -> None:
    """The steps below the boxes, each number under the middle of its own."""
    wide = WIDTH - _STRIP - 12
    middle = wide / steps / 2
    ends = (0.0, max(every * (steps - 1), 1))
    field = Field(picture, _STRIP + middle, picture.height, wide - 2 * middle, 3, ends, (0, 1))
    numbers = range(0, every * steps, every * math.ceil(steps / 10))
    field.marks_below({number: str(number) for number in numbers}, "step")


def _middle(top: float, index: int, of: int) -> float:
    return top + (index + 0.5) * _HIGH / of
