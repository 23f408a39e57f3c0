"""Loss against time, or whatever it costs: several runs that do not make the same steps."""

import itertools
from collections.abc import Mapping, Sequence

from course_lib.text import table

from .charts import Field, name_curves, round_numbers
from .palette import strokes
from .svg_drawing import SMALL, WIDTH, Picture, Point, width
from .view import View

Run = tuple[Sequence[float], Sequence[float]]
_ROWS = 5  # moments of the table
_LEFT, _WIDE, _HIGH = 60, 766, 240  # pixels of the field


def loss_curves(
    runs: Mapping[str, Run],
    unit: str,
    title: str,
    target: float | None = None,
    events: Mapping[str, float] | None = None,
) -> View:
    """A line for each of `runs[name] = (moments, losses)` in `unit`.

    target  a loss that is drawn as a dashed line, with a dot and the moment where each run first
            is at it or below
    events  {what happened: when}, marked by lines from top to bottom
    Moments rise, but where a run goes back to an earlier one, as after a kill: its line is broken
    there. The text has the last loss of each run at or before some moments.
    """
    for name, (moments, losses) in runs.items():
        if len(moments) != len(losses) or not moments:
            raise ValueError(f"{name}: {len(moments)} moments and {len(losses)} losses")
    end = max(max(moments) for moments, _ in runs.values())
    first = min(min(moments) for moments, _ in runs.values())
    for what, moment in (events or {}).items():
        if not min(first, 0) <= moment <= end:
            raise ValueError(f"{what} at {moment:g} is not between {min(first, 0):g} and {end:g}")
    reached = {} if target is None else {n: _first(run, target) for n, run in runs.items()}
    text = _text(runs, end, unit, title)
    for name, there in reached.items():
        text += f"\n{name}: at {target:g} " + ("never" if there is None else f"at {there[0]:g}")
    text += "".join(f"\n{what}: {moment:g}" for what, moment in (events or {}).items())
    return View(_draw(runs, end, unit, title, target, reached, events or {}), text)


# ------------------------------------------------------------------------------------------------


def _text(runs: Mapping[str, Run], end: float, unit: str, title: str) -> str:
    rows = [[unit, *runs]]
    for number in range(1, _ROWS + 1):
        moment = end * number / _ROWS
        rows.append([f"{moment:.0f}", *(_at(run, moment) for run in runs.values())])
    return "\n".join([title, table(rows)])


def _at(run: Run, moment: float) -> str:
    earlier = [loss for when, loss in zip(*run, strict=True) if when <= moment + 1e-9]
    return f"{earlier[-1]:.2f}" if earlier else "-"


def _first(run: Run, target: float) -> Point | None:
    """The moment of the first loss at the target or below, and that loss; None if there is none."""
    return next((point for point in zip(*run, strict=True) if point[1] <= target), None)


def _draw(
    runs: Mapping[str, Run], end: float, unit: str, title: str, target: float | None,
    reached: Mapping[str, Point | None], events: Mapping[str, float],
) -> Picture:  # fmt: skip
    picture = Picture(title)
    highest = max(max(losses) for _, losses in runs.values())
    top = picture.height + (38 if events else 24)
    field = Field(picture, _LEFT, top, _WIDE, _HIGH, (0, end), (0, 1.05 * highest))
    field.marks_below(round_numbers(0, end, 8, "{:g}".format), unit)
    field.marks_left(round_numbers(0, highest, 5, "{:g}".format), "loss", grid=True)
    _mark(field, events)
    looks = strokes(runs)
    for name, (moments, losses) in runs.items():
        for part in _unbroken(list(zip(moments, losses, strict=True))):
            field.curve(part, looks[name], name)
    if target is not None:
        y = field.up(target)
        picture.line([(field.left, y), (field.right, y)], "ink", 1, "6 4")
        # On the left, where losses are still high, no curve runs through it
        picture.text(field.left + 6, y - 9, f"target {target:g}", SMALL, ink="soft")
    there = {name: point for name, point in reached.items() if point is not None}
    free = field.left
    for name, (moment, loss) in sorted(there.items(), key=lambda pair: pair[1]):
        x, y = field.across(moment), field.up(loss)
        words = f"{moment:.3g}" if moment < 1000 else f"{moment:.0f}"
        picture.dot(x, y, 4, looks[name].color, f"{name}: at {target:g} at {words}")
        if x - width(words, SMALL) / 2 > free:  # else it would run into its neighbour
            picture.text(x, y + 12, words, SMALL, "middle", bold=True)
            free = x + width(words, SMALL) / 2 + 4
    name_curves(picture, looks)
    return picture


def _unbroken(points: list[Point]) -> list[list[Point]]:
    """A curve in parts, of which each begins where the run went back to an earlier moment."""
    parts = [points[:1]]
    for earlier, later in itertools.pairwise(points):
        if later[0] < earlier[0]:
            parts.append([])
        parts[-1].append(later)
    return parts


def _mark(field: Field, events: Mapping[str, float]) -> None:
    """A line for what happened, and above it what that was, one beside the other."""
    free = field.left
    for what, moment in sorted(events.items(), key=lambda pair: pair[1]):
        x, wide = field.across(moment), width(what, SMALL)
        field.picture.line([(x, field.top - 4), (x, field.bottom)], "alarm", 1.2, "3 3")
        left = min(max(free, x - wide / 2), WIDTH - 4 - wide)
        field.picture.text(left, field.top - 12, what, SMALL, ink="alarm")
        free = left + wide + 12
