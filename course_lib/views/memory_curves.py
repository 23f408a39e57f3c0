"""What the ranks held, one moment after the other: a panel a rank, or a panel a run."""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation

from course_lib.observe import Memory, MemoryCurve

from .areas import area, key
from .lettering import letter
from .palette import INK, MEMORY
from .scales import mark, round_numbers
from .units import size_text, time_text
from .view import View

LARGEST = 8  # panels
_MOST_POINTS = 800  # of the curves beside each other: about one a pixel
_ROW, _PANEL = 1.9, 1.4  # inches from one row of panels to the next, and what of it is a panel
_GAP = 0.12  # between two panels, in widths of a panel

Peak = tuple[int, dict[str, int]]  # bytes in all, and by kind


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
    peaks = {name: _peak(curve) for name, curve in panels.items()}
    return View(_draw(panels, peaks, title, over), _text(peaks, title))


# ------------------------------------------------------------------------------------------------


def _curve(name: str, memory: Memory, rank: int) -> MemoryCurve:
    if not 0 <= rank < memory.world_size:
        raise ValueError(f"{name} has {memory.world_size} ranks, no rank {rank}")
    return memory.curves[rank]


def _peak(curve: MemoryCurve) -> Peak:
    """The most bytes at one time, and which."""
    total = curve.total
    if not total:
        return 0, dict.fromkeys(MEMORY, 0)
    top = max(range(len(total)), key=total.__getitem__)
    return total[top], {kind: column[top] for kind, column in curve.nbytes.items()}


def _text(peaks: Mapping[str, Peak], title: str) -> str:
    """No times: they are measured, and no two runs have the same."""
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


def _draw(
    panels: Mapping[str, MemoryCurve], peaks: Mapping[str, Peak], title: str, over: str
) -> Figure:
    """All panels in one Axes, which draws far faster than one for each.

    A panel is 1 wide and as high as the most bytes are: they are to scale, and so are the gaps.
    """
    columns = min(4, len(panels)) if len(panels) != 4 else 2
    rows = -(-len(panels) // columns)
    highest = 1.08 * (max(total for total, _ in peaks.values()) or 1)
    across, down = 1 + _GAP, highest * _ROW / _PANEL  # from one panel to the next
    figure = Figure(figsize=(9, _ROW * rows + 0.9))
    high = figure.get_figheight()
    ax = figure.add_axes((0.085, 0.85 / high, 0.9, (_ROW * (rows - 1) + _PANEL) / high))
    ax.set(xlim=(0, columns * across - _GAP), ylim=(0, (rows - 1) * down + highest))
    ax.axis("off")
    text = time_text if over == "time" else "{:g}".format
    steps = round_numbers(0, highest, 4, size_text)
    areas: dict[str, list[np.ndarray]] = {}
    heads, below, aside, frames, tops = [], [], [], [], []
    for place, (name, curve) in enumerate(panels.items()):
        left, low = place % columns * across, (rows - 1 - place // columns) * down
        end = _end(curve, over)
        for kind, outline in _stack(curve, over, _MOST_POINTS // columns).items():
            areas.setdefault(kind, []).append(outline / (end, 1) + (left, low))
        peak = peaks[name][0]
        heads.append((left + 0.5, low + highest, f"{name}: peak {size_text(peak)}", INK))
        marks = round_numbers(0, end, 3, text)
        below += [(left + x / end, low, said) for x, said in marks.items()]
        aside += [(left, low + y, "" if place % columns else said) for y, said in steps.items()]
        frames += [(left, low + highest), (left, low), (left + 1, low), (np.nan, np.nan)]
        tops += [(left, low + peak), (left + 1, low + peak), (np.nan, np.nan)]
    shown = {kind: MEMORY[kind] for kind in MEMORY if kind in areas}
    for kind, fill in shown.items():
        area(ax, areas[kind], fill, kind, edge=0)
    ax.add_artist(Line2D(*np.transpose(frames), color=INK, linewidth=0.8, clip_on=False))
    ax.add_artist(Line2D(*np.transpose(tops), color=INK, linewidth=0.8, linestyle=":"))
    mark(ax, below, "below")
    mark(ax, aside, "left")
    above = ScaledTranslation(0, 0.08, figure.dpi_scale_trans)
    letter(ax, heads, size=8, bold=True, transform=ax.transData + above)
    label = "allocations and releases, in order" if over == "order" else "time since the first"
    figure.supxlabel(label, fontsize=8, y=0.4 / high)
    figure.supylabel("bytes held", fontsize=8, x=0.005)
    if title:
        figure.text(0.01, 1 - 0.15 / high, title, fontsize=9, weight="bold", va="center")
    key(figure, shown)
    return figure


def _end(curve: MemoryCurve, over: str) -> float:
    """Where a panel ends: how many changes there were, or seconds from the first to the last."""
    if over == "order":
        return len(curve.times) or 1
    return (curve.times[-1] - curve.times[0] if curve.times else 0) or 1e-6


def _stack(curve: MemoryCurve, over: str, most: int) -> dict[str, np.ndarray]:
    """Outlines (corners, 2) on top of each other, with steps: bytes stay until they change."""
    picked = _thin(np.array(curve.total), most)
    if not len(picked):
        return {}
    starts = picked if over == "order" else np.array(curve.times)[picked] - curve.times[0]
    x = np.append(np.repeat(starts, 2)[1:], _end(curve, over))
    low, outlines = np.zeros(len(x)), {}
    for kind in MEMORY:
        column = np.array(curve.nbytes[kind])
        if column.any():
            top = low + np.repeat(column[picked], 2)
            corners = np.append(x, x[::-1]), np.append(low, top[::-1])
            outlines[kind] = np.stack(corners, axis=1)
            low = top
    return outlines


def _thin(total: np.ndarray, most: int) -> np.ndarray:
    """Places to draw: all, or in each stretch of a long curve the highest and the last."""
    if len(total) <= most:
        return np.arange(len(total))
    stretch = -(-2 * len(total) // most)
    starts = range(0, len(total), stretch)
    highest = [start + int(total[start : start + stretch].argmax()) for start in starts]
    return np.unique([*highest, *(min(s + stretch, len(total)) - 1 for s in starts)])
