"""Time against size on logarithmic axes: what formulas say, and what was measured."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .palette import LINES
from .scales import decades, scale_x, scale_y
from .units import size_text, time_text
from .view import View

TABLE_SIZES = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8)


def cost_curves(
    lines: Mapping[str, Callable[[float], float]],
    points: Mapping[str, tuple[Sequence[float], Sequence[float]]] | None = None,
    title: str = "",
) -> View:
    """Curves `lines[name](nbytes) -> seconds`, and measured `points[name] = (nbytes, seconds)`.

    The text is a table of the curves at some sizes, the fastest marked, and of the points.
    """
    if len(lines) > len(LINES):
        raise ValueError(f"{len(LINES)} lines can be told apart, not {len(lines)}")
    points = points or {}
    return View(_draw(lines, points, title), _text(lines, points, title))


# ------------------------------------------------------------------------------------------------


def _text(lines: Mapping, points: Mapping, title: str) -> str:
    width = max(12, *(len(name) + 3 for name in lines))
    rows = [title] if title else []
    rows.append(f"{'size':>8}" + "".join(f"{name:>{width}}" for name in lines))
    for size in TABLE_SIZES:
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


def _draw(lines: Mapping, points: Mapping, title: str) -> Figure:
    figure = Figure(figsize=(6.6, 3.6))
    ax = figure.add_axes((0.13, 0.14, 0.85, 0.77))
    measured = [size for sizes, _ in points.values() for size in sizes]
    low, high = (min(measured), max(measured)) if measured else (1e3, 1e9)
    grid = [low * (high / low) ** (k / 80) for k in range(81)]
    seen = [time for _, times in points.values() for time in times]
    for (name, line), (color, dashes) in zip(lines.items(), LINES, strict=False):
        times = [line(size) for size in grid]
        seen += times
        ax.add_line(Line2D(grid, times, color=color, linestyle=dashes, label=name))
    for name, (sizes, times) in points.items():
        ax.plot(sizes, times, "o", color="black", markerfacecolor="white", label=name)
    ax.set(xscale="log", yscale="log", xlim=_wider(grid), ylim=_wider(seen))
    ax.minorticks_off()
    scale_x(ax, decades(*ax.get_xlim(), size_text), "size", size=8, grid=True)
    scale_y(ax, decades(*ax.get_ylim(), time_text), "time", size=8, grid=True)
    ax.set_title(title, fontsize=9, weight="bold", y=1)
    ax.legend(fontsize=8, loc="upper left")
    return figure


def _wider(values: Sequence[float]) -> tuple[float, float]:
    """From least to most on a logarithmic scale, and a twentieth more on both sides."""
    low, high = min(values), max(values)
    more = max(high / low, 1.1) ** 0.05
    return low / more, high * more
