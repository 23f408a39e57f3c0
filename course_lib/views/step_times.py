"""Times of steps that do the same, as ratios to the first of them."""

import statistics
from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from .palette import INK, LINES
from .view import View


def step_times(
    seconds: Mapping[str, Sequence[float]], counted: Mapping[str, float] | None = None
) -> View:
    """Bars end at the quickest round of each step, black lines at the median.

    seconds  {name: one number per round}; both are divided by the quickest round of the first
    counted  operations of each step over those of the first, drawn as diamonds
    """
    if not seconds:
        raise ValueError("there are 0 steps to compare, at least 1")
    first = next(iter(seconds))
    base = min(seconds[first])
    least = [min(own) / base for own in seconds.values()]
    middle = [statistics.median(own) / base for own in seconds.values()]
    rows = [f"time of a step, the quickest round; {first}: {1e3 * base:.1f} ms"]
    for name, low, high in zip(seconds, least, middle, strict=True):
        rows.append(f"{name:24} {low:.2f} (median {high:.2f})")
    return View(_draw(list(seconds), least, middle, counted or {}), "\n".join(rows))


def _draw(
    names: list[str], least: list[float], middle: list[float], counted: Mapping[str, float]
) -> Figure:
    figure = Figure(figsize=(7.5, 0.34 * len(names) + 1.1))
    ax = figure.subplots()
    rows = range(len(names))
    ax.barh(rows, least, color=LINES[4][0], height=0.6)
    for row, low, high in zip(rows, least, middle, strict=True):
        ax.plot([low, high], [row, row], color=INK, lw=1.5)
        ax.annotate(f"{low:.2f}", (high, row), (6, 0), textcoords="offset points", va="center")
    if counted:
        drawn = [counted[name] for name in names]
        ax.plot(drawn, rows, "D", color=LINES[1][0], label="operations, counted")
        ax.legend(fontsize=8, loc="lower right", bbox_to_anchor=(1, 1), frameon=False)
    ax.axvline(1, color=INK, lw=0.8, ls="--")
    ax.set_yticks(rows, names)
    furthest = max([*middle, *counted.values()])
    ax.set(xlim=(0, 1.15 * furthest), xlabel=f"time of a step over that of {names[0]}")
    ax.set_title("bar: the quickest round; line: on to the median", fontsize=8)
    ax.invert_yaxis()
    figure.tight_layout()
    return figure
