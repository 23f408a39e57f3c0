"""Times of steps that do the same, as ratios to the first of them."""

import statistics
from collections.abc import Mapping, Sequence

from .charts import Field, name_curves, round_numbers
from .palette import SERIES
from .svg_drawing import WIDTH, Picture, width
from .view import View

_ROW = 30  # pixels


def step_times(
    seconds: Mapping[str, Sequence[float]], counted: Mapping[str, float] | None = None
) -> View:
    """Bars end at the quickest round of each step, black lines at the median.

    seconds  {name: one number per round}; both are divided by the quickest round of the first
    counted  operations of each step over those of the first, drawn as dots
    """
    if not seconds:
        raise ValueError("there are 0 steps to compare, at least 1")
    first = next(iter(seconds))
    base = min(seconds[first])
    least = [min(own) / base for own in seconds.values()]
    middle = [statistics.median(own) / base for own in seconds.values()]
    rows = [f"time of a step, the quickest round; {first}: {1e3 * base:.1f} ms"]
    for name, low, high in zip(seconds, least, middle, strict=True):
        rows.append(f"{name:24} {low:.2f} ({_median(high)})")
    return View(_draw(list(seconds), least, middle, counted or {}), "\n".join(rows))


def _median(high: float) -> str:
    return f"median {high:.2f}"


def _draw(
    names: list[str], least: list[float], middle: list[float], counted: Mapping[str, float]
) -> Picture:
    picture = Picture(f"time of a step over that of {names[0]}")
    left = 16 + max(map(width, names))
    top, furthest = picture.height + 4, max([*middle, *counted.values()])
    size = WIDTH - 20 - left, _ROW * len(names)
    most = furthest * size[0] / (size[0] - width(_median(furthest)) - 12)
    field = Field(picture, left, top, *size, (0, most), (0, 1))
    x = field.across(1)
    picture.line([(x, top), (x, field.bottom)], "soft", 1, "4 3")
    for row, (name, low, high) in enumerate(zip(names, least, middle, strict=True)):
        y = top + _ROW * (row + 0.5)
        picture.text(left - 8, y, name, anchor="end")
        hint = f"{name}: quickest {low:.2f}, median {high:.2f}"
        picture.box(left, y - 8, field.across(low) - left, 16, SERIES[2], hint, key="quickest")
        picture.line([(field.across(low), y), (field.across(high), y)], "ink", 1.5)
        picture.text(left + 6, y, f"{low:.2f}", bold=True, ink=SERIES[2].ink)
        picture.text(field.across(high) + 7, y, _median(high), ink="soft")
        if name in counted:
            hint = f"{name}: {counted[name]:.2f} times the operations"
            picture.dot(field.across(counted[name]), y, 5, SERIES[1].color, hint)
    field.marks_below(round_numbers(0, most, 8, "{:g}".format))
    words = {"the quickest round; the line goes on to the median": SERIES[2]}
    picture.key(words)
    if counted:
        name_curves(picture, {}, {"operations, counted": SERIES[1].color})
    return picture
