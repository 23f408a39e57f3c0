"""What lies in memory, and whether a device has room for it: one bar each, stacked by purpose."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course_lib.observe import Memory
from course_lib.views.palette import ALARM, MEMORY
from course_lib.views.units import size_text
from course_lib.views.view import View

Bars = Mapping[str, Mapping[str, float]]  # name of the bar -> purpose -> bytes
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
    figure = Figure(figsize=(7.6, 0.36 * len(bars) + 1.25))
    high = figure.get_figheight()
    ax = figure.add_axes((0.2, 0.78 / high, 0.78, 1 - 1.1 / high))
    starts = dict.fromkeys(bars, 0.0)
    shown = _shown(bars)
    for part in shown:
        fill = MEMORY[part]
        widths = [parts.get(part, 0) for parts in bars.values()]
        ax.barh(
            range(len(bars)), widths, 0.72, list(starts.values()),
            color=fill.color, hatch=fill.hatch, edgecolor="white", linewidth=0.5,
        )  # fmt: skip
        for name, width in zip(bars, widths, strict=True):
            starts[name] += width
    for place, total in enumerate(totals.values()):
        over = capacity is not None and total > capacity
        cut = total > limit * 0.85
        said = f"{size_text(total)}{' →' if total > limit else ''}"
        ax.text(
            limit * 0.99 if cut else total + limit * 0.01,
            place,
            said,
            va="center",
            ha="right" if cut else "left",
            fontsize=8,
            weight="bold" if over else "normal",
            bbox={"boxstyle": "square,pad=0.15", "fc": "white", "ec": "none"} if cut else None,
        )
    if capacity is not None:
        ax.axvline(capacity, color=ALARM, linewidth=2, linestyle="--")
    ax.set(xlim=(0, limit), ylim=(len(bars) - 0.4, -0.6))
    ax.set_yticks(range(len(bars)), list(bars), fontsize=8)
    ax.locator_params(axis="x", nbins=6)
    ax.xaxis.set_major_formatter(lambda nbytes, _: size_text(nbytes) if nbytes else "0")
    ax.tick_params(axis="x", labelsize=8)
    ax.tick_params(axis="y", length=0)
    ax.set_xlabel("bytes on a device", fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    if title:
        figure.text(0.01, 1 - 0.2 / high, title, fontsize=9, weight="bold", va="center")
    handles = [
        Patch(facecolor=MEMORY[part].color, hatch=MEMORY[part].hatch, edgecolor="white", label=part)
        for part in shown
    ]
    if capacity is not None:
        handles.append(
            ax.plot([], [], color=ALARM, linestyle="--", linewidth=2,
                    label=f"a device: {size_text(capacity)}")[0]
        )  # fmt: skip
    figure.legend(handles=handles, loc="lower left", ncols=6, fontsize=8, frameon=False)
    return figure
