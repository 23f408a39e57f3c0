"""What each tensor-parallel rank holds of every matrix of a layer, and where ranks must speak.

Shapes: T tokens, C hidden size, V vocabulary. Split by columns, a product needs no communication
and its result is split too; split by rows, each rank has a summand of the result, and an all-reduce
adds them up (Shoeybi et al., "Megatron-LM", 2019, section 3).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from .explore import Explorer, explore
from .lettering import Word, letter
from .palette import INK, QUIET, RANKS, Fill
from .view import View

Split = Literal["whole", "columns", "rows", "sum"]
TOKENS = 8
_BACKWARD = "; backward, an all-reduce of X's gradient"
_GAP = 0.55  # inches between matrices


@dataclass(frozen=True)
class Matrix:
    """One matrix of a layer, its shape and how it lies on the ranks; `sign` stands before it."""

    sign: str
    name: str
    rows: int
    columns: int
    split: Split
    weight: bool = False


LAYERS = ("column-parallel linear", "row-parallel linear", "MLP", "attention", "embedding")


def layer_matrices(layer: str, hidden: int) -> list[Matrix]:
    """The matrices of a layer from left to right, as they are multiplied."""
    wide = 4 * hidden
    x = Matrix("", "X", TOKENS, hidden, "whole")
    if layer == "column-parallel linear":
        weight = Matrix("x", "W", hidden, hidden, "columns", True)
        return [x, weight, Matrix("=", "Y", TOKENS, hidden, "columns")]
    if layer == "row-parallel linear":
        x = Matrix("", "X", TOKENS, hidden, "columns")
        weight = Matrix("x", "W", hidden, hidden, "rows", True)
        return [x, weight, Matrix("=", "Y", TOKENS, hidden, "sum")]
    if layer == "MLP":
        return [
            x,
            Matrix("x", "A", hidden, wide, "columns", True),
            Matrix("GeLU", "Z", TOKENS, wide, "columns"),
            Matrix("x", "B", wide, hidden, "rows", True),
            Matrix("=", "Y", TOKENS, hidden, "sum"),
        ]
    if layer == "attention":
        return [
            x,
            Matrix("x", "Q, K, V", hidden, 3 * hidden, "columns", True),
            Matrix("heads", "Z", TOKENS, hidden, "columns"),
            Matrix("x", "out", hidden, hidden, "rows", True),
            Matrix("=", "Y", TOKENS, hidden, "sum"),
        ]
    if layer == "embedding":
        table = Matrix("", "E", wide, hidden, "rows", True)
        return [table, Matrix("look up", "X", TOKENS, hidden, "sum")]
    raise ValueError(f"{layer!r} is none of {', '.join(LAYERS)}")


def pieces(size: int, ranks: int) -> list[int]:
    """`size` in `ranks` pieces, as equal as can be."""
    return [size * (rank + 1) // ranks - size * rank // ranks for rank in range(ranks)]


def sharding(layer: str = "MLP", ranks: int = 2, hidden: int = 16) -> View:
    """The matrices of a layer over 1 to 8 ranks: one colour and number a rank."""
    if not 1 <= ranks <= len(RANKS):
        raise ValueError(f"the picture holds 1 to {len(RANKS)} ranks, not {ranks}")
    if hidden < ranks:
        raise ValueError(f"hidden = {hidden} columns cannot be divided over {ranks} ranks")
    matrices = layer_matrices(layer, hidden)
    held = sum(
        max(pieces(m.columns if m.split == "columns" else m.rows, ranks))
        * (m.rows if m.split == "columns" else m.columns)
        for m in matrices
        if m.weight
    )
    whole = sum(m.rows * m.columns for m in matrices if m.weight)
    talk = "an all-reduce adds up Y" if matrices[-1].split == "sum" else "forward in silence"
    talk = talk.replace("Y", matrices[-1].name)
    if ranks == 1:
        talk = "no communication"
    elif matrices[0].split == "whole":
        talk += (
            "; backward, one more for X's gradient" if matrices[-1].split == "sum" else _BACKWARD
        )
    on = f"{layer} on {ranks} rank{'s' if ranks > 1 else ''}"
    title = f"{on}: {held} of {whole} weights on each; {talk}"
    return View(_draw(matrices, ranks, title), _text(matrices, ranks, title))


def sharding_explorer() -> Explorer:
    """`sharding` under sliders."""
    return explore(sharding, layer=list(LAYERS), ranks=list(range(1, 9)), hidden=[8, 12, 16, 24])


# ------------------------------------------------------------------------------------------------


def _text(matrices: list[Matrix], ranks: int, title: str) -> str:
    rows = [["matrix", "shape", "each rank holds"]]
    for m in matrices:
        parts = pieces(m.columns if m.split == "columns" else m.rows, ranks)
        cut = str(parts[0]) if len(set(parts)) == 1 else " or ".join(map(str, sorted({*parts})))
        rows.append(
            [
                m.name,
                f"{m.rows} x {m.columns}",
                {
                    "whole": "all of it",
                    "columns": f"{m.rows} x {cut}, a block of columns",
                    "rows": f"{cut} x {m.columns}, a block of rows",
                    "sum": f"{m.rows} x {m.columns}, a summand",
                }[m.split if ranks > 1 else "whole"],
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{c:<{w}}" for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    return "\n".join([title, *lines])


def _draw(matrices: list[Matrix], ranks: int, title: str) -> Figure:
    columns, tall = sum(m.columns for m in matrices), max(m.rows for m in matrices)
    cell = min((9.2 - _GAP * len(matrices)) / columns, 3.2 / tall)  # inches
    gap, line = _GAP / cell, 0.13 / cell
    figure = Figure(figsize=(9.2, tall * cell + 1.0))
    high = figure.get_figheight()
    ax = figure.add_axes((0, 0, 1, 1 - 0.35 / high))
    ax.set(xlim=(0, 9.2 / cell), ylim=(tall + 2.5 * line, -2.5 * line))
    ax.axis("off")
    figure.text(0.01, 1 - 0.17 / high, title, fontsize=9, weight="bold", va="center")
    corners, colors = [], []
    words: list[Word] = []
    left = 0.0
    for m in matrices:
        words.append((left + gap / 2, tall / 2, m.sign, INK))
        left, top = left + (gap if m.sign else gap / 4), (tall - m.rows) / 2
        for (x, y, w, h), fill, name in _blocks(m, ranks):
            box = [(x, y), (x + w, y), (x + w, y + h), (x, y + h)]
            corners.append([(left + a, top + b) for a, b in box])
            colors.append(fill.color)
            words.append((left + x + w / 2, top + y + h / 2, name, fill.ink))
        middle = left + m.columns / 2
        words.append((middle, top - line, m.name, INK))
        words.append((middle, top + m.rows + line, f"{m.rows} x {m.columns}", INK))
        left += m.columns
    ax.add_collection(
        PolyCollection(corners, facecolors=colors, edgecolors="white", linewidths=0.8)
    )
    letter(ax, [word for word in words if word[2]], size=8)
    return figure


def _blocks(m: Matrix, ranks: int) -> Iterator[tuple[tuple[float, ...], Fill, str]]:
    """((left, top, width, height), how filled, what stands in it) of a matrix's parts."""
    if m.split == "whole" or ranks == 1:
        yield (0, 0, m.columns, m.rows), Fill(QUIET), "on all" if ranks > 1 else "0"
        return
    if m.split == "sum":
        # Sheets of paper one over the other, rank 0's on top: of one shape, to be added
        over = 0.45 * (ranks - 1)
        for rank in reversed(range(ranks)):
            box = (0.45 * rank, 0.45 * rank, m.columns - over, m.rows - over)
            yield box, RANKS[rank], "" if rank else "sum"
        return
    start = 0
    for rank, size in enumerate(pieces(m.columns if m.split == "columns" else m.rows, ranks)):
        box = (start, 0, size, m.rows) if m.split == "columns" else (0, start, m.columns, size)
        yield box, RANKS[rank], str(rank)
        start += size
