"""How much of a pipeline stands idle, over the number of microbatches."""

from collections.abc import Callable, Mapping, Sequence

from course_lib.text import listed, table

from .charts import Field, name_curves
from .palette import STROKES, Stroke
from .svg_drawing import SMALL, Picture
from .view import View

Bubble = Callable[[int, int], float]  # ranks, microbatches -> share of all the time
_MOST = 1024  # microbatches
_ROWS = (1, 4, 16, 64, 256, _MOST)
_DENSE = sorted({round(2 ** (k / 8)) for k in range(81)})  # where the curves have their corners


def bubble_curves(bubble: Bubble, ranks: Sequence[int] = (2, 4, 8, 64), line: float = 0.1) -> View:
    """A curve of `bubble(p, m)` for each p in `ranks`, and where it first falls below `line`."""
    if not 1 <= len(ranks) <= len(STROKES):
        raise ValueError(f"{len(STROKES)} curves can be told apart, not {len(ranks)}")
    below = {p: _first_below(bubble, p, line) for p in ranks}
    found = {p: m for p, m in below.items() if m}
    title = "the part of all the time in which a pipeline of p stages is idle"
    if found:
        title = f"idle for less than {line:.0%} of the time from m = {listed(found.values())} on"
    rows = [["m", *(f"p = {p}" for p in ranks)]]
    rows += [[str(m), *(f"{bubble(p, m):.0%}" for p in ranks)] for m in _ROWS]
    return View(_draw(bubble, below, line, title), "\n".join([title, table(rows, left=0)]))


def _first_below(bubble: Bubble, p: int, line: float) -> int | None:
    return next((m for m in range(1, _MOST + 1) if bubble(p, m) < line), None)


def _draw(bubble: Bubble, below: Mapping[int, int | None], line: float, title: str) -> Picture:
    picture = Picture(title)
    top = picture.height + 24
    field = Field(picture, 60, top, 750, 250, (1, 1.05 * _MOST), (0, 1), log_x=True)
    marks = {float(2**k): str(2**k) for k in range(11)}
    field.marks_below(marks, "m, microbatches, logarithmic", grid=True)
    field.marks_left({k / 5: f"{k / 5:.0%}" for k in range(6)}, "idle", grid=True)
    y = field.up(line)
    picture.line([(field.left, y), (field.right, y)], "alarm", 1.5)
    picture.text(field.left + 6, y - 8, f"{line:.0%}", SMALL, ink="alarm")
    looks: dict[str, Stroke] = {}
    for (p, first), look in zip(below.items(), STROKES, strict=False):
        name = f"p = {p}"
        looks[name] = look
        field.curve([(m, bubble(p, m)) for m in _DENSE], look, name)
        if first:
            hint = f"p = {p}: below {line:.0%} from m = {first}"
            picture.dot(field.across(first), field.up(bubble(p, first)), 4, look.color, hint)
    name_curves(picture, looks)
    return picture
