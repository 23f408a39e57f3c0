"""The numbers along an axis. matplotlib makes five objects for each tick, this two for them all."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.markers import TICKDOWN, TICKLEFT
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import ScaledTranslation, Transform

from .lettering import letter, width
from .palette import INK

_TICK, _PAD = 3.5, 3.0  # points


def round_numbers(
    low: float, high: float, most: int, text: Callable[[float], str]
) -> dict[float, str]:
    """At most `most` + 1 round numbers from low to high, and how each is written."""
    numbers = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return {n: text(n) if n else "0" for n in map(float, numbers) if low <= n <= high}


def decades(low: float, high: float, text: Callable[[float], str]) -> dict[float, str]:
    """At most nine powers of ten, or what is rounder than that where hardly two lie between."""
    if high < 10 * low:
        return round_numbers(low, high, 6, text)
    steps = (1, 2, 5) if high < 100 * low else (1,)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = (last - first - 2) // 9 + 1
    marks = [step * 10.0**k for k in range(first, last + 1, every) for step in steps]
    return {mark: text(mark) for mark in marks if low <= mark <= high}


def scale_x(
    ax: Axes, marks: Mapping[float, str], label: str = "", size: float = 7, grid: bool = False
) -> None:
    """Write marks[x] below each x, and what it is that they count."""
    ax.set_xticks([])
    if grid:
        grid_lines(ax, list(marks), "x")
    places = [(x, 0.0, text) for x, text in marks.items()]
    mark(ax, places, "below", size, transform=ax.get_xaxis_transform())
    ax.set_xlabel(label, fontsize=max(8, size), labelpad=_TICK + 3 * _PAD + 0.8 * size)


def scale_y(
    ax: Axes, marks: Mapping[float, str], label: str = "", size: float = 7, grid: bool = False,
    ticks: bool = True,
) -> None:  # fmt: skip
    """Write marks[y] left of each y, and what it is that they count."""
    ax.set_yticks([])
    if grid:
        grid_lines(ax, list(marks), "y")
    places = [(0.0, y, text) for y, text in marks.items()]
    mark(ax, places, "left", size, ticks, ax.get_yaxis_transform())
    if label:
        widest = max((width(text, size) for text in marks.values()), default=0.0)
        ax.set_ylabel(label, fontsize=max(8, size), labelpad=_TICK + 2 * _PAD + widest)


def mark(
    ax: Axes,
    places: Sequence[tuple[float, float, str]],
    side: Literal["below", "left"],
    size: float = 7,
    ticks: bool = True,
    transform: Transform | None = None,
) -> None:
    """A tick and a text at each (x, y, text), in data coordinates if no others are given."""
    transform = transform or ax.transData
    if ticks:
        x, y = np.array([place[:2] for place in places], dtype=float).reshape(-1, 2).T
        ax.add_artist(
            Line2D(
                x, y, linestyle="none", marker=TICKDOWN if side == "below" else TICKLEFT,
                markersize=_TICK, markeredgewidth=0.8, color=INK, transform=transform,
                clip_on=False,
            )
        )  # fmt: skip
    out = (_TICK + _PAD) / 72  # inches
    right, up = (0.0, -out - 0.37 * size / 72) if side == "below" else (-out, 0.0)
    away = ScaledTranslation(right, up, ax.figure.dpi_scale_trans)
    words = [(x, y, text, INK) for x, y, text in places if text]
    align = "center" if side == "below" else "right"
    letter(ax, words, size, align, transform=transform + away)


def grid_lines(ax: Axes, places: Sequence[float], axis: Literal["x", "y"]) -> None:
    """One broken line through all places, from one side of the axes to the other."""
    there = np.repeat(places, 3)
    across = np.tile([0.0, 1.0, np.nan], len(places))
    x, y = (there, across) if axis == "x" else (across, there)
    along = ax.get_xaxis_transform() if axis == "x" else ax.get_yaxis_transform()
    ax.add_artist(Line2D(x, y, color="#dddddd", linewidth=0.8, zorder=0.5, transform=along))
