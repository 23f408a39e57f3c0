"""What lies in memory, and whether a device has room for it: one bar each, stacked by purpose."""

from collections.abc import Mapping

from course_lib.observe import Memory
from course_lib.text import table

from .charts import Field, round_numbers, stack
from .palette import INK, MEMORY, PAPER
from .svg_drawing import SMALL, WIDTH, Picture, width
from .units import size_text
from .view import View

Bars = Mapping[str, Mapping[str, float]]  # name of the bar -> purpose -> bytes
_ROW = 30  # pixels
_CUT = 3  # times the capacity: what is longer is cut off, or the others would vanish


def memory_bars(bars: Bars, capacity: float | None = None, title: str = "") -> View:
    """Bars of bytes by what they are for (`palette.MEMORY` has the names), and a device's capacity.

    A bar much longer than the capacity is not to scale, but in itself; its bytes stand on it.
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
    fits = [""]
    for name, parts in bars.items():
        total = sum(parts.values())
        cells = (size_text(parts[part]) if parts.get(part) else "." for part in shown)
        rows.append([name, *cells, size_text(total)])
        fits.append("" if capacity is None else "fits" if total <= capacity else "does not fit")
    lines = [title] if title else []
    pairs = zip(table(rows).splitlines(), fits, strict=True)
    lines += [f"{line}  {word}".rstrip() for line, word in pairs]
    if capacity is not None:
        lines.append(f"a device has {size_text(capacity)}")
    return "\n".join(lines)


def _draw(bars: Bars, capacity: float | None, title: str) -> Picture:
    totals = {name: sum(parts.values()) for name, parts in bars.items()}
    longest = max(totals.values()) or 1
    limit = 1.18 * (longest if capacity is None else max(capacity, min(longest, _CUT * capacity)))
    left = 16 + max(width(name) for name in bars)
    picture = Picture(title)
    top = picture.height + (26 if capacity is not None else 6)
    field = Field(picture, left, top, WIDTH - 20 - left, _ROW * len(bars), (0, limit), (0, 1))
    shown = _shown(bars)
    for index, (name, parts) in enumerate(bars.items()):
        y, total = top + _ROW * index, totals[name]
        fits = "" if capacity is None else ("fits" if total <= capacity else "does not fit")
        picture.text(left - 8, y + _ROW / 2, name, anchor="end")
        ordered = {part: parts[part] for part in shown if parts.get(part)}
        # A bar that is cut keeps its proportions.
        pixels = (field.right - left) / max(limit, total)
        stack(picture, ordered, MEMORY, left, y + 4, _ROW - 8, pixels, size_text, field.right)
        words = f"{size_text(total)}{', does not fit' if fits.startswith('does') else ''}"
        wide = width(words, bold=True)
        if total * pixels + wide + 10 < field.right - left:
            x = _beside(left + total * pixels, wide, capacity and field.across(capacity))
            picture.text(x, y + _ROW / 2, words, bold=fits.startswith("does"))
        else:  # longer than the picture: said on a label at its end
            words += ", not to scale →" if total > limit else ""
            wide = width(words, bold=True) + 12
            picture.box(field.right - wide - 4, y + 6, wide, _ROW - 12, PAPER)
            picture.text(field.right - 10, y + _ROW / 2, words, SMALL, "end", True, INK)
    field.marks_below(round_numbers(0, limit, 6, size_text), "bytes on a device")
    if capacity is not None:
        x = field.across(capacity)
        picture.line([(x, top - 6), (x, field.bottom)], "alarm", 2, "6 4")
        words = f"a device has {size_text(capacity)}"
        picture.text(x, top - 14, words, SMALL, "middle", ink="alarm")
    picture.key({part: MEMORY[part] for part in shown})
    return picture


def _beside(end: float, wide: float, capacity: float | None) -> float:
    """Where the words behind a bar begin: next to it, but not across the line of the device."""
    crossed = capacity is not None and end - 4 <= capacity < end + 14 + wide
    return (capacity if crossed and capacity else end) + 8
