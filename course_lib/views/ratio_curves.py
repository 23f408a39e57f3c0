"""What several methods take, over a ratio of two rates."""

import itertools
from collections.abc import Mapping, Sequence

from course_lib.text import table

from .charts import Field, decades, name_curves, round_numbers
from .palette import STROKES, strokes
from .svg_drawing import Picture, Point
from .view import View


def ratio_curves(
    ratios: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    title: str,
    highest: float | None = None,
    log_y: bool = False,
) -> View:
    """A line per method over `ratios` (logarithmic), and the same as a table.

    highest: where the picture ends; the table has all of it. log_y: whether values differ by so
        much that their axis is logarithmic, too; then all are above 0.
    """
    if len(curves) > len(STROKES):
        raise ValueError(f"{len(STROKES)} lines can be told apart, not {len(curves)}")
    rows = [(xlabel, *curves)]
    for ratio, *numbers in zip(ratios, *curves.values(), strict=True):
        rows.append((f"{ratio:,}", *(f"{number:,.2f}" for number in numbers)))
    picture = Picture(title)
    values = [value for curve in curves.values() for value in curve]
    low, high = min(values), max(values) if highest is None else highest
    low, high = (low / 1.5, high * 1.5) if log_y else (max(0.0, low - 0.05 * (high - low)), high)
    across = (min(ratios) / 1.05, max(ratios) * 1.05)
    room = (60, picture.height + 24, 766, 260)
    field = Field(picture, *room, across, (low, high), log_x=True, log_y=log_y)
    field.marks_below({ratio: f"{ratio:g}" for ratio in ratios}, f"{xlabel}, logarithmic", True)
    if log_y:
        field.marks_left(decades(low, high, "{:g}".format), f"{ylabel}, logarithmic", grid=True)
    else:
        field.marks_left(round_numbers(low, high, 6, "{:g}".format), ylabel, grid=True)
    looks = strokes(curves)
    for name, curve in curves.items():
        points = [(field.across(r), field.up(v)) for r, v in zip(ratios, curve, strict=True)]
        looked_at = _below(field.top, points)
        picture.line(looked_at, looks[name].color, 2, looks[name].dashes, name, hint=name)
        for x, y in looked_at:
            if (x, y) in points:
                picture.dot(x, y, 3, looks[name].color, name)
    name_curves(picture, looks)
    return View(picture, f"{title}\n{table(rows)}")


def _below(top: float, points: Sequence[Point]) -> list[Point]:
    """The pixels of a line, cut where it leaves the picture at the top."""
    found = []
    for (x, y), (to, then) in itertools.pairwise(points):
        if y >= top:
            found.append((x, y))
        if (y < top) != (then < top):
            found.append((x + (to - x) * (top - y) / (then - y), top))
    return found + [point for point in points[-1:] if point[1] >= top]
