"""Bars of labelled parts, one below the other, and a line that they should stay under."""

from collections.abc import Mapping, Sequence

from course_lib.text import table

from .charts import Field, Text, round_numbers, stack
from .palette import MEMORY, QUIET, RANKS, SERIES, STEP, WAITS, Fill
from .svg_drawing import SMALL, WIDTH, Picture, width
from .view import View

Bars = Mapping[str, Mapping[str, float]]  # name of the bar -> part -> amount
_ROW = 30  # pixels
_CUT, _CUT_TO = 4, 3  # times the limit: what is longer is cut, or the others would vanish
_STUB = 40  # pixels behind the cut
_KNOWN = (
    MEMORY,
    STEP,
    {"computing": STEP["compute"], "waiting": WAITS},
    {"used": STEP["compute"], "unused": Fill("pale", ink="ink")},
    {"whole": QUIET, "this rank's part": RANKS[0]},
)


def stacked_bars(
    bars: Bars, label: str, title: str = "", text: Text = "{:g}".format,
    limit: float | None = None, limit_words: str = "", verdicts: tuple[str, str] = ("", ""),
) -> View:  # fmt: skip
    """A bar for each of `bars[name] = {part: amount}`, all on one scale.

    label     of the scale: what is counted, and in what
    text      how an amount is written
    limit     an amount that is drawn as a line, `limit_words` above it
    verdicts  what is said of a bar up to the limit, in words only, and of a longer one
    Parts have the colours of `palette` if it names them all, else up to four others. A bar far
    beyond the limit is cut, and says so.
    """
    if not bars:
        raise ValueError("there is no bar to show")
    negative = {part: n for parts in bars.values() for part, n in parts.items() if n < 0}
    if negative:
        raise ValueError(f"amounts below 0 cannot be stacked: {negative}")
    fills = _fills(bars)
    judged = {name: _verdict(sum(parts.values()), limit, verdicts) for name, parts in bars.items()}
    picture = _draw(bars, fills, label, title, text, limit, limit_words, judged)
    return View(picture, _text(bars, fills, title, text, limit_words, judged))


# ------------------------------------------------------------------------------------------------


def _fills(bars: Bars) -> dict[str, Fill]:
    """Each part that has an amount anywhere, in the order of the palette or of the bars."""
    named = {part: n for parts in bars.values() for part, n in parts.items()}
    used = [part for part in named if any(parts.get(part) for parts in bars.values())]
    for known in _KNOWN:
        if set(named) <= set(known):
            return {part: fill for part, fill in known.items() if part in used}
    if len(used) > len(SERIES):
        raise ValueError(f"up to {len(SERIES)} parts can be told apart, and there are {len(used)}")
    return dict(zip(used, SERIES, strict=False))


def _verdict(total: float, limit: float | None, verdicts: tuple[str, str]) -> tuple[str, bool]:
    """What is said of a bar, and whether it is beyond the limit."""
    beyond = limit is not None and total > limit
    return ("" if limit is None else verdicts[beyond]), beyond


def _text(
    bars: Bars, shown: Sequence[str] | Mapping[str, Fill], title: str, text: Text,
    limit_words: str, judged: Mapping[str, tuple[str, bool]],
) -> str:  # fmt: skip
    rows = [["", *shown, "total"]]
    for name, parts in bars.items():
        cells = (text(parts[part]) if parts.get(part) else "." for part in shown)
        rows.append([name, *cells, text(sum(parts.values()))])
    said = ["", *(words for words, _ in judged.values())]
    lines = [title] if title else []
    lines += [
        f"{line}  {words}".rstrip()
        for line, words in zip(table(rows).splitlines(), said, strict=True)
    ]
    return "\n".join([*lines, *([limit_words] if limit_words else [])])


def _draw(
    bars: Bars, fills: Mapping[str, Fill], label: str, title: str, text: Text,
    limit: float | None, limit_words: str, judged: Mapping[str, tuple[str, bool]],
) -> Picture:  # fmt: skip
    totals = {name: sum(parts.values()) for name, parts in bars.items()}
    end = _end(max(totals.values()) or 1, limit)
    words = {name: _words(text(n), n > end, *judged[name]) for name, n in totals.items()}
    left = 16 + max(width(name) for name in bars)
    picture = Picture(title)
    top = picture.height + (26 if limit is not None else 6)
    beside = 16 + max(width(said, bold=judged[name][1]) for name, said in words.items())
    field = Field(picture, left, top, WIDTH - beside - left, _ROW * len(bars), (0, end), (0, 1))
    for index, (name, parts) in enumerate(bars.items()):
        y = top + _ROW * index
        picture.text(left - 8, y + _ROW / 2, name, anchor="end")
        ordered = {part: parts[part] for part in fills if parts.get(part)}
        x = _bar(field, ordered, fills, y + 4, text, totals[name] > end)
        wide = width(words[name], bold=judged[name][1])
        x = _beside(x, wide, None if limit is None else field.across(limit))
        picture.text(x, y + _ROW / 2, words[name], bold=judged[name][1])
    field.marks_below(round_numbers(0, end, 6, text), label)
    if limit is not None:
        x = field.across(limit)
        picture.line([(x, top - 6), (x, field.bottom)], "reverse", 4)  # bars have all colours
        picture.line([(x, top - 6), (x, field.bottom)], "alarm", 2, "6 4")
        picture.text(x, top - 14, limit_words, SMALL, "middle", ink="alarm")
    picture.key(fills)
    return picture


def _end(longest: float, limit: float | None) -> float:
    """The amount at the right end of the scale."""
    if limit is None:
        return longest
    return max(longest if longest <= _CUT * limit else _CUT_TO * limit, 1.04 * limit)


def _words(total: str, cut: bool, verdict: str, beyond: bool) -> str:
    """What stands beside a bar; that it is below the limit, it shows."""
    return ", ".join([total, *([verdict] if beyond and verdict else [])]) + (" (cut)" * cut)


def _bar(
    field: Field, parts: Mapping[str, float], fills: Mapping[str, Fill], y: float, text: Text,
    cut: bool,
) -> float:  # fmt: skip
    """Draw one bar; returns where it ends. Of one that is cut its end follows behind the cut."""
    picture, high, stop = field.picture, _ROW - 8, field.right - cut * _STUB
    total = sum(parts.values()) or 1
    pixels = (field.across(total) - field.left) / total
    end = stack(picture, parts, fills, field.left, y, high, pixels, text, stop)
    if not cut:
        return end
    for x in (stop + 3, stop + 9):
        picture.line([(x - 3, y + high + 3), (x + 3, y - 3)], "soft", 1.5)
    x = field.right
    for part, amount in reversed(list(parts.items())):  # the end of the bar, on the same scale
        begin = max(x - amount * pixels, stop + 12)
        if begin < x:
            hint = f"{part}: {text(amount)}, cut"
            picture.box(begin, y, x - begin, high, fills[part], hint, key="cut")
        x = begin
    return field.right


def _beside(end: float, wide: float, limit: float | None) -> float:
    """Where the words behind a bar begin: next to it, but not across the line of the limit."""
    crossed = limit is not None and end - 4 <= limit < end + 14 + wide
    return (limit if crossed and limit else end) + 8
