"""Time against size on logarithmic axes: what formulas say, and what was measured."""

import itertools
from collections.abc import Callable, Mapping, Sequence

from .charts import Field, decades, name_curves
from .palette import STROKES, strokes
from .svg_drawing import Picture
from .units import size_text, time_text
from .view import View

MEASURED = ("#c2700a", "#b2558c")  # of points, seen on pages of either theme
TABLE_SIZES = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8)


def cost_curves(
    lines: Mapping[str, Callable[[float], float]],
    points: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
    title: str = "",
    label: str = "size of the message",
    sizes: tuple[float, float] = (1e3, 1e9),
) -> View:
    """Curves `lines[name](nbytes) -> seconds`, and measured `points[name] = (nbytes, seconds)`.

    The scale goes from the smallest to the largest point, or over `sizes` where there is none. The
    text is a table of the curves at some sizes, the fastest marked, and of the points.
    """
    if len(lines) > len(STROKES):
        raise ValueError(f"{len(STROKES)} lines can be told apart, not {len(lines)}")
    points = points or {}
    across = _range(points, sizes)
    return View(_draw(lines, points, title, label, across), _text(lines, points, title, across))


# ------------------------------------------------------------------------------------------------


def _range(points: Mapping, sizes: tuple[float, float]) -> tuple[float, float]:
    measured = [size for found, _ in points.values() for size in found]
    return (min(measured), max(measured)) if measured else sizes


def _text(lines: Mapping, points: Mapping, title: str, across: tuple[float, float]) -> str:
    width = max(12, *(len(name) + 3 for name in lines))
    rows = [title] if title else []
    rows.append(f"{'size':>8}" + "".join(f"{name:>{width}}" for name in lines))
    shown = TABLE_SIZES if points else [n for n in TABLE_SIZES if across[0] <= n <= across[1]]
    for size in shown:
        times = [line(size) for line in lines.values()]
        best = min(times)
        cells = (
            f"{'*' if len(times) > 1 and time == best else ''}{time_text(time)}" for time in times
        )
        rows.append(f"{size_text(size):>8}" + "".join(f"{cell:>{width}}" for cell in cells))
    if len(lines) > 1:
        rows.append("* the fastest at this size")
    for name, (sizes, times) in points.items():
        pairs = zip(sizes, times, strict=True)
        rows.append(f"{name}: " + ", ".join(f"{size_text(s)} {time_text(t)}" for s, t in pairs))
    return "\n".join(rows)


def _draw(
    lines: Mapping, points: Mapping, title: str, label: str, sizes: tuple[float, float]
) -> Picture:
    low, high = sizes
    grid = [low * (high / low) ** (k / 80) for k in range(81)]
    curves = {name: [(size, line(size)) for size in grid] for name, line in lines.items()}
    found = {name: list(zip(*pair, strict=True)) for name, pair in points.items()}
    seen = [time for pairs in (*curves.values(), *found.values()) for _, time in pairs]
    picture = Picture(title)
    across, up = _wider(grid), _wider(seen)
    field = Field(picture, 70, picture.height + 24, 740, 280, across, up, True, True)
    field.marks_below(decades(*across, size_text), f"{label}, logarithmic", grid=True)
    field.marks_left(decades(*up, time_text), "time, logarithmic", grid=True)
    looks = strokes(lines)
    for name, pairs in curves.items():
        field.curve(pairs, looks[name], name)
    for number, (name, pairs) in enumerate(found.items()):
        for size, time in pairs:
            hint = f"{name}: {size_text(size)} in {time_text(time)}"
            picture.dot(field.across(size), field.up(time), 4, MEASURED[number % 2], hint)
    name_curves(picture, looks, dict(zip(points, itertools.cycle(MEASURED), strict=False)))
    return picture


def _wider(values: Sequence[float]) -> tuple[float, float]:
    """From least to most on a logarithmic scale, and a twentieth more on both sides."""
    low, high = min(values), max(values)
    more = max(high / low, 1.1) ** 0.05
    return low / more, high * more
