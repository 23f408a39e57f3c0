"""What lies in memory, and whether a device has room for it: one bar each, stacked by purpose."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from course_lib.observe import Memory

from .areas import key, stack
from .lettering import letter, width
from .palette import ALARM, INK, MEMORY
from .scales import round_numbers, scale_x, scale_y
from .units import size_text
from .view import View

Bars = Mapping[str, Mapping[str, float]]  # name of the bar -> purpose -> bytes
_WIDTH, _SHARE = 7.6, 0.78  # inches, and what of it is bytes
_CUT = 3  # times the capacity: what is longer is cut off, or the others would vanish


def memory_bars(bars: Bars, capacity: float | None = None, title: str = "") -> View:
    """Bars of bytes by what they are for (`palette.MEMORY` has the names), and a device's capacity.

    A bar much longer than the capacity is cut; what it stands for is written beside it.
    """
    if not bars:
        raise ValueError("there is no bar to show")
    for name, parts in bars.items():
        if unknown := set(parts) - set(MEMORY):
            raise ValueError(f"{name}: {sorted(unknown)} are none of {list(MEMORY)}")
    if capacity is not None and not capacity > 0:
        raise ValueError(f"capacity = {capacity} bytes must be more than 0")
    return View(_draw(bars, capacity, title), _text(bars, capacity, title))


def run_memory(memory: Memory, title: str = "") -> View:
    """Each rank of a run at its own peak."""
    bars = {f"rank {rank}": parts for rank, parts in enumerate(memory.at_peak)}
    most = max(range(len(bars)), key=memory.peak.__getitem__)
    said = title or f"at each rank's peak; most on rank {most}, {size_text(memory.peak[most])}"
    return memory_bars(bars, title=said)


# ------------------------------------------------------------------------------------------------


def _shown(bars: Bars) -> list[str]:
    """Purposes that take a byte anywhere."""
    return [part for part in MEMORY if any(parts.get(part, 0) for parts in bars.values())]


def _text(bars: Bars, capacity: float | None, title: str) -> str:
    shown = _shown(bars)
    rows = [["", *shown, "total"]]
    for name, parts in bars.items():
        total = sum(parts.values())
        fits = "" if capacity is None else ("  fits" if total <= capacity else "  does not fit")
        cells = (size_text(parts.get(part, 0)) if parts.get(part) else "." for part in shown)
        rows.append([name, *cells, size_text(total) + fits])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        row[0].ljust(widths[0])
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:-1], widths[1:-1], strict=True))
        + f"  {row[-1]}"
        for row in rows
    ]
    if capacity is not None:
        lines.append(f"a device has {size_text(capacity)}")
    return "\n".join(line.rstrip() for line in ([title] if title else []) + lines)


def _draw(bars: Bars, capacity: float | None, title: str) -> Figure:
    totals = {name: sum(parts.values()) for name, parts in bars.items()}
    longest = max(totals.values()) or 1
    limit = 1.18 * (longest if capacity is None else max(capacity, min(longest, _CUT * capacity)))
    high = 0.36 * len(bars) + (1.25 if capacity is None else 1.4)
    figure = Figure(figsize=(_WIDTH, high))
    ax = figure.add_axes((0.2, 0.78 / high, _SHARE, 0.36 * len(bars) / high))
    shown = _shown(bars)
    stack(ax, {part: [parts.get(part, 0) for parts in bars.values()] for part in shown}, MEMORY)
    words = []
    for place, total in enumerate(totals.values()):
        over = capacity is not None and total > capacity
        if total > limit * 0.85:
            ax.text(
                limit * 0.99, place, f"{size_text(total)}{' →' if total > limit else ''}",
                va="center", ha="right", fontsize=8, weight="bold" if over else "normal",
                bbox={"boxstyle": "square,pad=0.15", "fc": "white", "ec": "none"},
            )  # fmt: skip
        else:
            words.append((_beside(total, capacity, limit), place, size_text(total), INK, over))
    for bold in (False, True):
        letter(ax, [word[:4] for word in words if word[4] == bold], 8, "left", bold)
    ax.set(xlim=(0, limit), ylim=(len(bars) - 0.4, -0.6))
    scale_x(ax, round_numbers(0, limit, 6, size_text), "bytes on a device", size=8)
    scale_y(ax, dict(enumerate(bars)), size=8, ticks=False)
    ax.spines[["top", "right"]].set_visible(False)
    if title:
        figure.text(0.01, 1 - 0.2 / high, title, fontsize=9, weight="bold", va="center")
    if capacity is not None:
        ax.axvline(capacity, color=ALARM, linewidth=2, linestyle="--")
        above = ax.get_xaxis_transform() + ScaledTranslation(0, 0.08, figure.dpi_scale_trans)
        word = (capacity, 1, f"a device: {size_text(capacity)}", ALARM)
        letter(ax, [word], size=8, transform=above)
    key(figure, {part: MEMORY[part] for part in shown})
    return figure


def _beside(total: float, capacity: float | None, limit: float) -> float:
    """Where the words behind a bar begin: next to it, but not across the line of the device."""
    wide = width(size_text(total), 8) / 72 / (_WIDTH * _SHARE) * limit
    crossed = capacity is not None and total <= capacity < total + 0.01 * limit + wide
    return (capacity if crossed else total) + 0.01 * limit
