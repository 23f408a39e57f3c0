"""What the ranks held, one moment after the other: a panel per rank, or a panel per run."""

import bisect
from collections.abc import Mapping, Sequence
from typing import Literal

from course_lib.observe import Label, Memory, MemoryCurve
from course_lib.text import table

from .charts import Field, round_numbers
from .palette import MEMORY
from .svg_drawing import SMALL, WIDTH, Picture, width
from .units import size_text, time_text
from .view import View

LARGEST = 8  # panels
_MOST_POINTS = 400  # of the curves beside each other: one for two pixels
_NAMES = {"other": "other: the rest, such as results that nobody keeps"}
_ROW, _PANEL = 196, 138  # pixels from one row of panels to the next, and what of it is a panel

Peak = tuple[int, dict[str, int]]  # bytes in all, and by kind


def memory_curves(
    runs: Memory | Mapping[str, Memory],
    title: str = "",
    rank: int = 0,
    over: Literal["order", "time"] = "order",
    labels: Mapping[str, Sequence[Label]] | None = None,
) -> View:
    """Bytes held: by every rank of one run, or by rank `rank` of several runs by name.

    over: "order" gives every allocation and release the same width, so that a pause or a slow start
    takes none; "time" gives each its time by the clock. All panels share one scale of bytes.

    labels: parts of each of several runs, from its `Trace.labels`: a line where one begins on this
    rank, and its name below. (Not "optimizer", which tells the recorder what is in memory.)
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
    parts = {
        name: {label.name: label.start for label in own if label.rank == rank}
        for name, own in (labels or {}).items()
    }
    return View(_draw(panels, peaks, title, over, parts), _text(peaks, title))


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
    return "\n".join([*([title] if title else []), table(rows)])


def _draw(
    panels: Mapping[str, MemoryCurve], peaks: Mapping[str, Peak], title: str, over: str,
    parts: Mapping[str, Mapping[str, float]],
) -> Picture:  # fmt: skip
    """All panels share one scale of bytes."""
    columns = min(4, len(panels)) if len(panels) != 4 else 2
    highest = 1.08 * (max(total for total, _ in peaks.values()) or 1)
    wide = (WIDTH - 90 - 24 * (columns - 1)) / columns
    picture = Picture(title)
    steps = round_numbers(0, highest, 4, size_text)
    text = time_text if over == "time" else "{:g}".format
    across = round_numbers(0, max(_end(curve, over) for curve in panels.values()), 3, text)
    top, kinds = picture.height + 36, set()
    picture.text(4, picture.height + 8, "bytes held", SMALL, ink="soft")
    picture.dot(90, picture.height + 8, 3.5, "ink")
    picture.text(98, picture.height + 8, "the peak", SMALL, ink="soft")
    for index, (name, curve) in enumerate(panels.items()):
        left, y = 70 + index % columns * (wide + 24), top + index // columns * _ROW
        end = _end(curve, over)
        field = Field(picture, left, y, wide, _PANEL, (0, end), (0, highest))
        field.marks_left(steps if index % columns == 0 else dict.fromkeys(steps, ""), grid=True)
        begins, layers = _stack(curve, over, _MOST_POINTS // columns)
        x = [field.across(begin) for begin in begins]
        for kind, (low, high) in layers.items():
            below, above = [field.up(b) for b in low], [field.up(b) for b in high]
            picture.steps(x, below, above, MEMORY[kind], kind, f"{name}: {kind}")
            kinds.add(kind)
        peak = peaks[name][0]
        line = [(left, field.up(peak)), (left + wide, field.up(peak))]
        picture.line(line, "ink", 0.8, "2 2")
        if curve.times:
            _mark_peak(field, _place(curve, curve.total.index(peak), over), peaks[name])
        head = f"{name}: peak {size_text(peak)}"
        picture.text(left + wide / 2, y - 8, head, SMALL, "middle", bold=True)
        if own := _begins(curve, parts.get(name, {}), over):
            _name_parts(field, own, end)
        else:
            field.marks_below({x: words for x, words in across.items() if x <= end})
    rows = -(-len(panels) // columns)
    picture.height = top + (rows - 1) * _ROW + _PANEL + 34
    label = "allocations and releases, in order" if over == "order" else "time since the first"
    picture.text(WIDTH / 2, picture.height, label, SMALL, "middle", ink="soft")
    picture.height += 6
    picture.key({_NAMES.get(kind, kind): MEMORY[kind] for kind in MEMORY if kind in kinds})
    return picture


def _mark_peak(field: Field, place: float, peak: Peak) -> None:
    """A dot, and below it what is there: a peak may be shorter than a pixel is wide."""
    x, low, hint = field.across(place), 0, f"peak: {size_text(peak[0])}"
    for kind in MEMORY:
        if nbytes := peak[1][kind]:
            top, bottom = field.up(low + nbytes), field.up(low)
            field.picture.box(x, top, 2.5, bottom - top, MEMORY[kind])
            low += nbytes
            hint += f"\n{kind} {size_text(nbytes)}"
    field.picture.dot(x, field.up(peak[0]), 3.5, "ink", hint)


def _place(curve: MemoryCurve, change: int, over: str) -> float:
    """Where in a panel a change is."""
    return change if over == "order" else curve.times[change] - curve.times[0]


def _begins(curve: MemoryCurve, starts: Mapping[str, float], over: str) -> dict[str, float]:
    """Where in a panel each part begins, in order; none for a part before or behind it."""
    found = {}
    for name, start in sorted(starts.items(), key=lambda pair: pair[1]):
        change = bisect.bisect_left(curve.times, start)
        if start >= curve.times[0] and change < len(curve.times):
            found[name] = _place(curve, change, over)
    return found


def _name_parts(field: Field, begins: Mapping[str, float], end: float) -> None:
    """Lines where parts begin, and their names below, each under its part if there is room."""
    picture, free = field.picture, field.left
    picture.line([(field.left, field.bottom), (field.right, field.bottom)], "soft")
    behind = sum(width(name, SMALL) + 8 for name in begins)
    for (name, begin), until in zip(begins.items(), [*begins.values(), end][1:], strict=True):
        x, wide = field.across(begin), width(name, SMALL)
        picture.line([(x, field.top), (x, field.bottom + 4)], "soft", 1, "1 3")
        middle = (x + field.across(until)) / 2
        left = max(free, min(middle - wide / 2, field.right - behind + 8))
        picture.text(left, field.bottom + 13, name, SMALL)
        free, behind = left + wide + 8, behind - wide - 8


def _end(curve: MemoryCurve, over: str) -> float:
    """Where a panel ends: how many changes there were, or seconds from the first to the last."""
    if over == "order":
        return len(curve.times) or 1
    return (curve.times[-1] - curve.times[0] if curve.times else 0) or 1e-6


def _stack(
    curve: MemoryCurve, over: str, most: int
) -> tuple[list[float], dict[str, tuple[list[float], list[float]]]]:
    """Where bytes change, and by kind from what to what the kind reaches until the next change."""
    picked = _thin(curve.total, most)
    if not picked:
        return [], {}
    begins = picked if over == "order" else [curve.times[k] - curve.times[0] for k in picked]
    low, layers = [0.0] * len(picked), {}
    for kind in MEMORY:
        column = curve.nbytes[kind]
        if any(column):
            high = [below + column[k] for below, k in zip(low, picked, strict=True)]
            layers[kind] = low, high
            low = high
    return [*begins, _end(curve, over)], layers


def _thin(total: Sequence[int], most: int) -> list[int]:
    """Places to draw: all, or in each stretch of a long curve the highest and the last."""
    if len(total) <= most:
        return list(range(len(total)))
    stretch = -(-2 * len(total) // most)
    found = set()
    for start in range(0, len(total), stretch):
        part = range(start, min(start + stretch, len(total)))
        found |= {max(part, key=total.__getitem__), part[-1]}
    return sorted(found)
