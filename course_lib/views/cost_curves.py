"""Time against size on logarithmic axes: what formulas say, and what was measured."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from course_lib.views.palette import LINES
from course_lib.views.units import size_text, time_text
from course_lib.views.view import View

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
    for (name, line), (color, dashes) in zip(lines.items(), LINES, strict=False):
        ax.plot(grid, [line(size) for size in grid], color=color, linestyle=dashes, label=name)
    for name, (sizes, times) in points.items():
        ax.plot(sizes, times, "o", color="black", markerfacecolor="white", label=name)
    ax.set(xscale="log", yscale="log", xlabel="size", ylabel="time", title=title)
    ax.xaxis.set_major_formatter(lambda size, _: size_text(size))
    ax.yaxis.set_major_formatter(lambda seconds, _: time_text(seconds))
    low_time, high_time = ax.get_ylim()
    if high_time < 10 * low_time:  # no power of ten may lie between
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
    return figure
