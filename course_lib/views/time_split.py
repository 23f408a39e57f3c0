"""What the workers' time went into, run by run: bars end to end, the shortest marked."""

from collections.abc import Mapping

from course_lib.text import table

from .charts import Field, round_numbers, stack
from .palette import STEP, WAITS
from .svg_drawing import WIDTH, Picture, width
from .view import View

FILLS = {"computing": STEP["compute"], "waiting": WAITS}
_ROW = 30  # pixels


def time_split(runs: Mapping[str, tuple[float, float]], unit: str, title: str = "") -> View:
    """A bar for each of `runs[name] = (computing, waiting)`, in `unit`."""
    if not runs:
        raise ValueError("there is no run to show")
    for name, parts in runs.items():
        if min(parts) < 0 or not sum(parts) > 0:
            raise ValueError(f"{name}: computing {parts[0]} and waiting {parts[1]}: negative or 0")
    rows = [["", *FILLS, "all"]]
    rows += [
        [name, *(f"{part:.1f}" for part in (*parts, sum(parts)))] for name, parts in runs.items()
    ]
    lines = [*([title] if title else []), table(rows), f"in {unit}"]
    return View(_draw(runs, unit, title), "\n".join(lines))


# ------------------------------------------------------------------------------------------------


def _draw(runs: Mapping[str, tuple[float, float]], unit: str, title: str) -> Picture:
    picture = Picture(title)
    totals = {name: sum(parts) for name, parts in runs.items()}
    least, longest = min(totals.values()), 1.15 * max(totals.values())
    left, top = 16 + max(map(width, runs)), picture.height + 6
    field = Field(picture, left, top, WIDTH - 20 - left, _ROW * len(runs), (0, longest), (0, 1))
    for row, (name, parts) in enumerate(runs.items()):
        y = top + _ROW * row
        shortest = len(runs) > 1 and totals[name] == least < max(totals.values())
        picture.text(left - 8, y + _ROW / 2, name, anchor="end", bold=shortest)
        named = dict(zip(FILLS, parts, strict=True))
        pixels = (field.right - left) / longest
        end = stack(picture, named, FILLS, left, y + 4, _ROW - 8, pixels, "{:.1f}".format)
        words = f"{totals[name]:.3g}{', the shortest' if shortest else ''}"
        picture.text(end + 7, y + _ROW / 2, words, bold=shortest)
    field.marks_below(round_numbers(0, longest, 8, "{:g}".format), unit)
    picture.key(FILLS)
    return picture
