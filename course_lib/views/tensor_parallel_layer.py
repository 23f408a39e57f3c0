"""What each tensor-parallel rank holds of every matrix of a layer, and where ranks must speak.

Shapes: T tokens, C hidden size, V vocabulary. Split by columns, a product needs no communication
and its result is split too; split by rows, each rank has a summand of the result, and an all-reduce
adds them up (Shoeybi et al., "Megatron-LM", 2019, section 3).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from course_lib.text import counted, table

from .palette import QUIET, RANKS, Fill
from .svg_drawing import SIZE, SMALL, WIDTH, Picture, width
from .view import View
from .widgets import Control, Explorer, explore

Split = Literal["whole", "columns", "rows", "sum"]
TOKENS = 8
_BACKWARD = "; backward, an all-reduce of X's gradient"
_GAP, _TALL = 34, 250  # pixels between matrices, and of the tallest


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
        weight = Matrix("×", "W", hidden, hidden, "columns", True)
        return [x, weight, Matrix("=", "Y", TOKENS, hidden, "columns")]
    if layer == "row-parallel linear":
        x = Matrix("", "X", TOKENS, hidden, "columns")
        weight = Matrix("×", "W", hidden, hidden, "rows", True)
        return [x, weight, Matrix("=", "Y", TOKENS, hidden, "sum")]
    if layer == "MLP":
        return [
            x,
            Matrix("×", "A", hidden, wide, "columns", True),
            Matrix("= GeLU", "Z", TOKENS, wide, "columns"),
            Matrix("×", "B", wide, hidden, "rows", True),
            Matrix("=", "Y", TOKENS, hidden, "sum"),
        ]
    if layer == "attention":
        return [
            x,
            Matrix("×", "Q, K, V", hidden, 3 * hidden, "columns", True),
            Matrix("= heads", "Z", TOKENS, hidden, "columns"),
            Matrix("×", "out", hidden, hidden, "rows", True),
            Matrix("=", "Y", TOKENS, hidden, "sum"),
        ]
    if layer == "embedding":
        table = Matrix("", "E", wide, hidden, "rows", True)
        return [table, Matrix("look up", "X", TOKENS, hidden, "sum")]
    raise ValueError(f"{layer!r} is none of {', '.join(LAYERS)}")


def pieces(size: int, ranks: int) -> list[int]:
    """`size` in `ranks` pieces, as equal as can be."""
    return [size * (rank + 1) // ranks - size * rank // ranks for rank in range(ranks)]


def tensor_parallel_layer(layer: str = "MLP", ranks: int = 2, hidden: int = 16) -> View:
    """The matrices of a layer over 1 to 8 ranks: one colour and number per rank."""
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
    talk = "an all-reduce adds up Y" if matrices[-1].split == "sum" else "forward, nothing is sent"
    talk = talk.replace("Y", matrices[-1].name)
    if ranks == 1:
        talk = "no communication"
    elif matrices[0].split == "whole":
        talk += (
            "; backward, one more for X's gradient" if matrices[-1].split == "sum" else _BACKWARD
        )
    on = f"{layer} on {counted(ranks, 'rank')}"
    title = f"{on}: {held} of {whole} weights on each; {talk}"
    return View(_draw(matrices, ranks, title), _text(matrices, ranks, title))


def sharding_explorer() -> Explorer:
    """`tensor_parallel_layer` under sliders."""
    return explore(
        tensor_parallel_layer,
        layer=list(LAYERS),
        ranks=list(range(1, 9)),
        hidden=Control([8, 12, 16, 24], "hidden size"),
    )


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
    return "\n".join([title, table(rows, left=3)])


def _draw(matrices: list[Matrix], ranks: int, title: str) -> Picture:
    """Matrices in one line, each as large as it is in the same scale, or smaller to fit."""
    picture = Picture(title)
    gaps = sum(max(_GAP, width(m.sign) + 24) if m.sign else 8 for m in matrices)
    columns = sum(m.columns for m in matrices)
    tall = max(m.rows for m in matrices)
    cell = min((WIDTH - 8 - gaps) / columns, _TALL / tall)
    middle, left = picture.height + 24 + _TALL / 2, 0.0
    for m in matrices:
        gap = max(_GAP, width(m.sign) + 24) if m.sign else 8
        picture.text(left + gap / 2, middle, m.sign, 14 if len(m.sign) == 1 else SIZE, "middle")
        left += gap
        wide, high = m.columns * cell, m.rows * cell
        top = middle - high / 2
        for (x, y, w, h), fill, name, hint in _blocks(m, ranks):
            picture.box(
                left + x * cell, top + y * cell, w * cell - 1, h * cell - 1, fill,
                f"{m.name}: {hint}", name if width(name, SMALL) < w * cell + 2 else "", key=m.name,
            )  # fmt: skip
        picture.text(left + wide / 2, top - 11, m.name, anchor="middle", bold=True)
        shape = f"{m.rows} × {m.columns}"
        picture.text(left + wide / 2, top + high + 12, shape, SMALL, "middle", ink="soft")
        left += wide
    picture.height = middle + _TALL / 2 + 24
    fills = {f"rank {rank}": fill for rank, fill in enumerate(RANKS[:ranks])}
    picture.key(fills | ({"on all ranks": QUIET} if ranks > 1 else {}))
    return picture


def _blocks(m: Matrix, ranks: int) -> Iterator[tuple[tuple[float, ...], Fill, str, str]]:
    """((left, top, width, height), how filled, word in it, hint) of a matrix's parts."""
    if m.split == "whole" or ranks == 1:
        yield (0, 0, m.columns, m.rows), QUIET, "all" if ranks > 1 else "0", "on all ranks"
        return
    if m.split == "sum":
        # Sheets of paper one over the other, rank 0's on top: of one shape, to be added
        over = 0.45 * (ranks - 1)
        for rank in reversed(range(ranks)):
            box = (0.45 * rank, 0.45 * rank, m.columns - over, m.rows - over)
            yield box, RANKS[rank], "" if rank else "sum", f"rank {rank} has a summand"
        return
    start = 0
    for rank, size in enumerate(pieces(m.columns if m.split == "columns" else m.rows, ranks)):
        box = (start, 0, size, m.rows) if m.split == "columns" else (0, start, m.columns, size)
        yield box, RANKS[rank], str(rank), f"rank {rank} has {size} {m.split}"
        start += size
