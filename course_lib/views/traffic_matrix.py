"""Who sends to whom: one row for each sender, one column for each receiver, runs side by side."""

import itertools
from collections.abc import Mapping, Sequence

from course_lib.observe import Trace

from .palette import Fill, shade
from .svg_drawing import SMALL, WIDTH, Picture, width, wrapped
from .units import size_text
from .view import View

LARGEST = 8  # ranks; with more the numbers no longer fit their squares
_LEFT, _NODE, _SUMS = 58, 18, 56  # pixels for the names of rows, and of nodes, and for sums
_SIDES = (36.0, 66.0)  # pixels of a square, at least and at most
_ALL = 420.0  # pixels of all squares of a panel at most
_SIZES = (SMALL, 10.0, 9.0)  # pixels of the numbers, the largest that fits them all
_HEAD, _FOOT = 52, 30  # pixels above the squares and below them
_LONG = 100_000  # bytes from which on a number is too long for its square


def traffic_matrix(runs: Trace | Mapping[str, Trace], per_node: int | None = None) -> View:
    """Bytes from every rank to every other, of one run or of several by name.

    The shades of all panels share one scale, so that the same shade means as much in each. The
    numbers stand in the squares too, and their sums beside them: nothing hangs on the colour.

    per_node  ranks of a node: lines show where one ends, and what crosses between them is counted
    """
    named = {"": runs} if isinstance(runs, Trace) else dict(runs)
    if not named:
        raise ValueError("there is no run to show")
    matrices = {name: trace.traffic().matrix for name, trace in named.items()}
    for matrix in matrices.values():
        if not 1 <= len(matrix) <= LARGEST:
            raise ValueError(f"the picture holds 1 to {LARGEST} ranks, not {len(matrix)}")
        if per_node is not None and (per_node < 1 or len(matrix) % per_node):
            raise ValueError(f"{len(matrix)} ranks do not make nodes of {per_node}")
    text = "\n\n".join(_text(name, matrix, per_node) for name, matrix in matrices.items())
    return View(_draw(matrices, per_node), text)


def _text(name: str, matrix: list[list[int]], per_node: int | None) -> str:
    ranks = [f"rank {rank}" for rank in range(len(matrix))]
    rows = [["bytes from", *(f"to {rank}" for rank in ranks), "sent"]]
    for rank, row in zip(ranks, matrix, strict=True):
        rows.append([rank, *(f"{n:,}" if n else "." for n in row), f"{sum(row):,}"])
    rows.append(["received", *(f"{received:,}" for received in _received(matrix)), ""])
    wide = max(len(cell) for row in rows for cell in row[1:])
    lines = [f"{row[0]:<10}" + "".join(f"  {cell:>{wide}}" for cell in row[1:]) for row in rows]
    if per_node is not None:
        lines.append(f"between nodes of {per_node} ranks: {_crossing(matrix, per_node):,}")
    return "\n".join(line.rstrip() for line in ([f"{name}:"] if name else []) + lines)


def _received(matrix: list[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*matrix, strict=True)]


def _crossing(matrix: list[list[int]], per_node: int) -> int:
    """Bytes that leave their node."""
    return sum(
        count
        for source, row in enumerate(matrix)
        for target, count in enumerate(row)
        if source // per_node != target // per_node
    )


def _draw(matrices: Mapping[str, list[list[int]]], per_node: int | None) -> Picture:
    most = max(max(map(max, matrix)) for matrix in matrices.values()) or 1
    heads = [name or _heaviest(matrix) for name, matrix in matrices.items()]
    if per_node is not None:
        between = (size_text(_crossing(matrix, per_node)) for matrix in matrices.values())
        heads = [
            f"{head}, {amount} between nodes" for head, amount in zip(heads, between, strict=True)
        ]
    picture = Picture("bytes from every rank (rows) to every other (columns)")
    picture.title += ": " + "; ".join(heads)
    largest = max(map(len, matrices.values()))
    names = _LEFT + (_NODE if per_node is not None else 0)
    around = names + _SUMS
    columns = max(1, min(len(matrices), int(WIDTH // (around + _SIDES[0] * largest))))
    side = min(_SIDES[1], _ALL / largest, (WIDTH / columns - around) / largest)
    panel = around + side * max(largest, 3)
    high = _HEAD + side * largest + _FOOT
    numbers = {count for m in matrices.values() for row in m for count in row}
    widest = max(width(_short(count), 1) for count in numbers)
    size = next((size for size in _SIZES if widest * size < side - 3), _SIZES[-1])
    begin = picture.height
    for index, (head, matrix) in enumerate(zip(heads, matrices.values(), strict=True)):
        left = names + index % columns * panel
        top = begin + _HEAD + index // columns * high
        room = WIDTH - left if index % columns == columns - 1 else panel - 20
        lines = wrapped(head, room, SMALL, True)[:2]
        for line, words in enumerate(lines):
            y = top - (36 if per_node is not None else 22) - 13 * (len(lines) - 1 - line)
            picture.text(left, y, words, SMALL, bold=True)
        _squares(picture, matrix, left, top, side, most, size)
        if per_node is not None:
            _nodes(picture, len(matrix), per_node, left, top, side)
        picture.height = top + side * len(matrix) + _FOOT
    return picture


def _squares(
    picture: Picture, matrix: list[list[int]], left: float, top: float, side: float, most: int,
    size: float,
) -> None:  # fmt: skip
    """A panel: names on the left and above, sums on the right and below."""
    n = len(matrix)
    right, below = left + n * side, top + n * side
    picture.text(right + 8, top - 8, "sent", SMALL, ink="soft")
    picture.text(left - 6, below + 12, "received", SMALL, "end", ink="soft")
    for rank, received in enumerate(_received(matrix)):
        across, down = left + (rank + 0.5) * side, top + (rank + 0.5) * side
        picture.text(left - 6, down, f"rank {rank}", SMALL, "end")
        picture.text(across, top - 8, f"to {rank}", SMALL, "middle", ink="soft")
        picture.text(right + 8, down, _short(sum(matrix[rank])), size)
        picture.text(across, below + 12, _short(received), size, "middle")
    for source, row in enumerate(matrix):
        for target, count in enumerate(row):
            fill = shade(count / most) if count else Fill("#88888818")
            hint = f"rank {source} to rank {target}: {count:,} bytes"
            x, y = left + target * side, top + source * side
            word = _short(count) if count else ""
            picture.box(x, y, side - 1, side - 1, fill, hint, word, size, key="bytes")


def _nodes(picture: Picture, n: int, per_node: int, left: float, top: float, side: float) -> None:
    """Thick lines between the nodes: only what is on the diagonal stays within one."""
    middle, edge = (per_node * side) / 2, left - _LEFT
    for first in range(0, n, per_node):
        at = first * side - 0.5
        name = f"node {first // per_node}"
        picture.text(left + at + middle, top - 21, name, SMALL, "middle", bold=True)
        picture.text(edge - 6, top + at + middle, name, SMALL, "middle", bold=True, turned=True)
        if first:
            picture.line([(left + at, top - 28), (left + at, top + n * side)], "ink", 2.5)
            picture.line([(edge, top + at), (left + n * side, top + at)], "ink", 2.5)


def _heaviest(matrix: Sequence[Sequence[int]]) -> str:
    count, source, target = max(
        (count, -source, -target)
        for source, row in enumerate(matrix)
        for target, count in enumerate(row)
    )
    if not count:
        return "no messages"
    if {*itertools.chain.from_iterable(matrix)} == {0, count}:
        return f"{_amount(count)} in every message"
    return f"most: {_amount(count)}, {-source} to {-target}"


def _amount(count: int) -> str:
    return f"{count:,} bytes" if count < _LONG else size_text(count)


def _short(count: int) -> str:
    """Bytes: all of them as long as they fit a square, then with a unit: 12,000, 166 kB."""
    return f"{count:,}" if count < _LONG else size_text(count)
