"""What the ranks held, one moment after the other: a panel a rank, or a panel a run."""

from collections.abc import Mapping
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course_lib.observe import Memory, MemoryCurve
from course_lib.views.palette import MEMORY
from course_lib.views.units import size_text, time_text
from course_lib.views.view import View

LARGEST = 8  # panels
_MOST_POINTS = 400  # of a curve; no panel of several is wider than that


def memory_curves(
    runs: Memory | Mapping[str, Memory],
    title: str = "",
    rank: int = 0,
    over: Literal["order", "time"] = "order",
) -> View:
    """Bytes held: by every rank of one run, or by rank `rank` of several runs by name.

    over: "order" gives every allocation and release the same width, so that a pause or a slow start
    takes none; "time" gives each its time by the clock. All panels share one scale of bytes.
    """
    if over not in ("order", "time"):
        raise ValueError(f"over = {over!r} is neither 'order' nor 'time'")
    if isinstance(runs, Memory):
        panels = {f"rank {r}": curve for r, curve in enumerate(runs.curves)}
    else:
        panels = {name: _curve(name, memory, rank) for name, memory in runs.items()}
    if not 1 <= len(panels) <= LARGEST:
        raise ValueError(f"the picture holds 1 to {LARGEST} panels, not {len(panels)}")
    return View(_draw(panels, title, over), _text(panels, title))


# ------------------------------------------------------------------------------------------------


def _curve(name: str, memory: Memory, rank: int) -> MemoryCurve:
    if not 0 <= rank < memory.world_size:
        raise ValueError(f"{name} has {memory.world_size} ranks, no rank {rank}")
    return memory.curves[rank]


def _peak(curve: MemoryCurve) -> tuple[int, dict[str, int]]:
    """The most bytes at one time, and which."""
    total = curve.total
    if not total:
        return 0, dict.fromkeys(MEMORY, 0)
    top = max(range(len(total)), key=total.__getitem__)
    return total[top], {kind: column[top] for kind, column in curve.nbytes.items()}


def _text(panels: Mapping[str, MemoryCurve], title: str) -> str:
    """No times: they are measured, and no two runs have the same."""
    peaks = {name: _peak(curve) for name, curve in panels.items()}
    shown = [kind for kind in MEMORY if any(parts[kind] for _, parts in peaks.values())]
    rows = [["at its peak", *shown, "total"]]
    for name, (total, parts) in peaks.items():
        rows.append([name, *(f"{parts[kind]:,}" for kind in shown), f"{total:,} bytes"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        row[0].ljust(widths[0])
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        for row in rows
    ]
    return "\n".join(line.rstrip() for line in ([title] if title else []) + lines)


def _draw(panels: Mapping[str, MemoryCurve], title: str, over: str) -> Figure:
    columns = min(4, len(panels)) if len(panels) != 4 else 2
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(9, 1.9 * rows + 0.9))
    high = figure.get_figheight()
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
    figure.subplots_adjust(
        left=0.085, right=0.985, bottom=0.85 / high, top=1 - 0.55 / high, wspace=0.12, hspace=0.6
    )
    most = max(_peak(curve)[0] for curve in panels.values()) or 1
    shown = [k for k in MEMORY if any(any(curve.nbytes[k]) for curve in panels.values())]
    for ax, (name, curve) in zip(axes.flat, panels.items(), strict=False):
        _stack(ax, curve, shown, over)
        top = _peak(curve)[0]
        ax.axhline(top, color="black", linewidth=0.8, linestyle=":")
        ax.set_title(f"{name}: peak {size_text(top)}", fontsize=8, weight="bold", pad=3)
        ax.set_ylim(0, 1.08 * most)
        ax.tick_params(labelsize=7)
        ax.locator_params(axis="x", nbins=3)
        ax.locator_params(axis="y", nbins=4)
        if over == "time":
            ax.xaxis.set_major_formatter(lambda seconds, _: time_text(seconds) if seconds else "0")
        ax.yaxis.set_major_formatter(lambda nbytes, _: size_text(nbytes) if nbytes else "0")
        ax.spines[["top", "right"]].set_visible(False)
    for ax in axes.flat[len(panels) :]:
        ax.axis("off")
    label = "allocations and releases, in order" if over == "order" else "time since the first"
    figure.supxlabel(label, fontsize=8, y=0.42 / high)
    figure.supylabel("bytes held", fontsize=8, x=0.005)
    if title:
        figure.text(0.01, 1 - 0.15 / high, title, fontsize=9, weight="bold", va="center")
    handles = [
        Patch(facecolor=MEMORY[kind].color, hatch=MEMORY[kind].hatch, edgecolor="white", label=kind)
        for kind in shown
    ]
    figure.legend(handles=handles, loc="lower left", ncols=6, fontsize=8, frameon=False)
    return figure


def _stack(ax: Axes, curve: MemoryCurve, shown: list[str], over: str) -> None:
    """Areas on top of each other, with steps: bytes stay until they change."""
    picked = _thin(curve.total)
    if not picked:
        return
    if over == "order":
        times, end = picked, len(curve.times)
    else:
        times = [curve.times[k] - curve.times[0] for k in picked]
        end = curve.times[-1] - curve.times[0] or 1e-6
    across = [*[t for time in times for t in (time, time)][1:], end]
    below = [0] * len(across)
    for kind in shown:
        column = curve.nbytes[kind]
        steps = [n for k in picked for n in (column[k], column[k])]
        above = [low + more for low, more in zip(below, steps, strict=True)]
        outline = [*zip(across, below, strict=True), *zip(across[::-1], above[::-1], strict=True)]
        fill = MEMORY[kind]
        ax.add_collection(
            PolyCollection(
                [outline], facecolors=fill.color, hatch=fill.hatch or None, edgecolors="white",
                linewidths=0.3, label=kind,
            ),
            autolim=False,
        )  # fmt: skip
        below = above
    ax.set_xlim(0, end)


def _thin(total: list[int]) -> list[int]:
    """Places to draw: all, or in each stretch of a long curve the highest and the last."""
    if len(total) <= _MOST_POINTS:
        return list(range(len(total)))
    stretch = -(-2 * len(total) // _MOST_POINTS)
    picked = set()
    for first in range(0, len(total), stretch):
        places = range(first, min(first + stretch, len(total)))
        picked |= {max(places, key=total.__getitem__), places[-1]}
    return sorted(picked)
