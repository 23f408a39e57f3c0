"""Words and tables that many rooms print alike; it imports no room, so that each of them may."""

import re
from collections.abc import Iterable, Sequence

_HYPHENED = re.compile(r"(?<!\S)[^\s<>]{0,16}(?:\w-\d|\d-\w)[^\s<>]{0,16}(?![^\s<])")


def listed(items: Iterable[object]) -> str:
    """1, 2 and 3"""
    *before, last = map(str, items)
    return f"{', '.join(before)} and {last}" if before else last


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """1 piece; 2 pieces; 2 batches; with `plural`, "2 copies" of "copy"."""
    ending = "es" if noun.endswith(("s", "x", "ch", "sh")) else "s"
    return f"{count} {noun if count == 1 else plural or noun + ending}"


def table(rows: Iterable[Sequence[object]], left: int = 1) -> str:
    """Rows of equal length as columns two spaces apart, the first `left` of them flush left."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    ]
    return "\n".join(line.rstrip() for line in lines)


def unbroken(text: str) -> str:
    """Text of HTML in which no line ends behind the hyphen of "ZeRO-2", "0-dimensional", "n-1"."""
    return _HYPHENED.sub(r'<span style="white-space:nowrap">\g<0></span>', text)


def sentences(*parts: str) -> str:
    """What is not empty, one sentence behind the other; the last one ends as it is given."""
    text = ""
    for part in filter(None, parts):
        if not text:
            text = part
            continue
        end = "" if text.endswith((".", "?", "!")) else "."
        text += f"{end} {part[0].upper()}{part[1:]}"
    return text
