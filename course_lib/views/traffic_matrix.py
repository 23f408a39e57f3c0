"""Who sends to whom: one row for each sender, one column for each receiver, runs side by side."""

import itertools
from collections.abc import Mapping

from course_lib.observe import Trace

from .palette import Fill, shade
from .svg_drawing import SMALL, WIDTH, Picture, wrapped
from .view import View

_LEFT = 60  # pixels for the names of rows
LARGEST = 8  # ranks; with more the numbers no longer fit their squares


def traffic_matrix(runs: Trace | Mapping[str, Trace]) -> View:
    """Bytes from every rank to every other, of one run or of several by name.

    The shades of all panels share one scale, so that dark means the same in each. The numbers stand
    in the squares too: nothing hangs on the colour.
    """
    named = {"": runs} if isinstance(runs, Trace) else dict(runs)
    if not named:
        raise ValueError("there is no run to show")
    matrices = {name: trace.traffic().matrix for name, trace in named.items()}
    for matrix in matrices.values():
        if not 1 <= len(matrix) <= LARGEST:
            raise ValueError(f"the picture holds 1 to {LARGEST} ranks, not {len(matrix)}")
    return View(_draw(matrices), "\n\n".join(_text(*item) for item in matrices.items()))


def _text(name: str, matrix: list[list[int]]) -> str:
    ranks = [f"rank {rank}" for rank in range(len(matrix))]
    rows = [["bytes from", *(f"to {rank}" for rank in ranks), "sent"]]
    for rank, row in zip(ranks, matrix, strict=True):
        rows.append([rank, *(f"{n:,}" if n else "." for n in row), f"{sum(row):,}"])
    columns = zip(*matrix, strict=True)
    rows.append(["received", *(f"{sum(column):,}" for column in columns), ""])
    width = max(len(cell) for row in rows[1:] for cell in row[1:])
    width = max(width, len("to rank 0"))
    lines = [f"{row[0]:<10}" + "".join(f"  {cell:>{width}}" for cell in row[1:]) for row in rows]
    return "\n".join(line.rstrip() for line in ([f"{name}:"] if name else []) + lines)


def _draw(matrices: Mapping[str, list[list[int]]]) -> Picture:
    most = max(max(map(max, matrix)) for matrix in matrices.values()) or 1
    heads = [name or _heaviest(matrix) for name, matrix in matrices.items()]
    picture = Picture("bytes from every rank (rows) to every other (columns)")
    picture.title += ": " + "; ".join(heads)
    largest = max(map(len, matrices.values()))
    side = min(52.0, (WIDTH / min(len(matrices), 3) - _LEFT - 20) / largest)
    panel = _LEFT + side * max(largest, 3) + 20
    columns = max(1, min(len(matrices), int(WIDTH // panel)))
    begin = picture.height
    for index, (head, matrix) in enumerate(zip(heads, matrices.values(), strict=True)):
        left = _LEFT + index % columns * panel
        top = begin + 46 + index // columns * (side * largest + 62)
        for line, words in enumerate(wrapped(head, panel - 20, SMALL, True)[:2]):
            picture.text(left, top - 34 + 13 * line, words, SMALL, bold=True)
        for source, row in enumerate(matrix):
            picture.text(left - 6, top + (source + 0.5) * side, f"rank {source}", SMALL, "end")
            middle = left + (source + 0.5) * side
            picture.text(middle, top - 8, f"to {source}", SMALL, "middle", ink="soft")
            for target, count in enumerate(row):
                fill = shade(count / most) if count else Fill("#88888818")
                hint = f"rank {source} to rank {target}: {count:,} bytes"
                x, y = left + target * side, top + source * side
                word = _short(count) if count else ""
                picture.box(x, y, side - 1, side - 1, fill, hint, word, key="bytes")
        picture.height = top + side * largest + 10
    return picture


def _heaviest(matrix: list[list[int]]) -> str:
    count, source, target = max(
        (count, -source, -target)
        for source, row in enumerate(matrix)
        for target, count in enumerate(row)
    )
    if not count:
        return "no messages"
    if {*itertools.chain.from_iterable(matrix)} == {0, count}:
        return f"{_short(count)} bytes in every message"
    return f"most: {_short(count)} bytes, {-source} to {-target}"


def _short(count: int) -> str:
    """Bytes in at most five characters: 12, 4000, 12.5k, 3.2M."""
    if count < 10_000:
        return str(count)
    thousands = min(4, (len(str(count)) - 1) // 3)
    return f"{count / 1000**thousands:.3g}{' kMGT'[thousands]}"
