"""What each tensor-parallel rank holds of every matrix of a layer, and where ranks must speak.

Shapes: T tokens, C hidden size, V vocabulary. Split by columns, a product needs no communication
and its result is split too; split by rows, each rank has a summand of the result, and an all-reduce
adds them up. f stands where a whole tensor goes into each rank's own part of the work, g where the
ranks' summands become one tensor again (Shoeybi et al., "Megatron-LM", 2019, section 3).
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
_GAP, _TALL = 34, 250  # pixels between matrices, and of the tallest
_SHEET = 7  # pixels by which a summand peeps out below the one above it
_OPERATORS = {
    "f": "f: nothing forward, an all-reduce backward.",
    "g": "g: an all-reduce forward of the summands, drawn as sheets; nothing backward.",
}


@dataclass(frozen=True)
class Matrix:
    """One matrix of a layer, its shape and how it lies on the ranks; `sign` stands before it.

    operator  f or g, if one stands before it too
    groups    equal groups of columns, each of which is cut over the ranks by itself
    """

    sign: str
    name: str
    rows: int
    columns: int
    split: Split
    weight: bool = False
    operator: str = ""
    groups: int = 1


LAYERS = ("column-parallel linear", "row-parallel linear", "MLP", "attention", "embedding")


def layer_matrices(layer: str, hidden: int) -> list[Matrix]:
    """The matrices of a layer from left to right, as they are multiplied."""
    wide = 4 * hidden
    x = Matrix("", "X", TOKENS, hidden, "whole")
    if layer == "column-parallel linear":
        weight = Matrix("×", "A", hidden, hidden, "columns", True, "f")
        return [x, weight, Matrix("=", "Y", TOKENS, hidden, "columns")]
    if layer == "row-parallel linear":
        x = Matrix("", "X", TOKENS, hidden, "columns")
        weight = Matrix("×", "A", hidden, hidden, "rows", True)
        return [x, weight, Matrix("=", "Y", TOKENS, hidden, "sum", operator="g")]
    if layer == "MLP":
        return [
            x,
            Matrix("×", "A", hidden, wide, "columns", True, "f"),
            Matrix("= GeLU", "Z", TOKENS, wide, "columns"),
            Matrix("×", "B", wide, hidden, "rows", True),
            Matrix("=", "Y", TOKENS, hidden, "sum", operator="g"),
        ]
    if layer == "attention":
        return [
            x,
            Matrix("×", "Q, K, V", hidden, 3 * hidden, "columns", True, "f", 3),
            Matrix("= heads", "Z", TOKENS, hidden, "columns"),
            Matrix("×", "out", hidden, hidden, "rows", True),
            Matrix("=", "Y", TOKENS, hidden, "sum", operator="g"),
        ]
    if layer == "embedding":
        table = Matrix("", "E", wide, hidden, "rows", True)
        return [table, Matrix("look up", "X", TOKENS, hidden, "sum", operator="g")]
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
    on = f"{layer[0].upper()}{layer[1:]} on {counted(ranks, 'rank')}"
    title = f"{on}: {_held(matrices, ranks)}; {_sent(matrices, ranks)}"
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


def _held(matrices: list[Matrix], ranks: int) -> str:
    """ "at most 96 of 256 weights on each"."""
    weights = [m for m in matrices if m.weight]
    most = sum(max(_parts(m, ranks)) * m.rows * m.columns // _length(m) for m in weights)
    whole = sum(m.rows * m.columns for m in weights)
    at_most = "at most " if most * ranks > whole else ""
    return f"{at_most}{most} of {whole} weights on each"


def _sent(matrices: list[Matrix], ranks: int) -> str:
    first, last = matrices[0], matrices[-1]
    if ranks == 1:
        return "no communication"
    if last.split != "sum":
        return f"only backward sends, an all-reduce of {first.name}'s gradient"
    more = f"; backward, one more for {first.name}'s gradient" if first.split == "whole" else ""
    return f"an all-reduce adds up {last.name}{more}"


def _length(m: Matrix) -> int:
    """Of what is cut: columns, or rows."""
    return m.columns if m.split == "columns" else m.rows


def _parts(m: Matrix, ranks: int) -> list[int]:
    """Columns or rows that each rank has, of all groups together."""
    return [m.groups * size for size in pieces(_length(m) // m.groups, ranks)]


def _text(matrices: list[Matrix], ranks: int, title: str) -> str:
    rows = [["matrix", "shape", "each rank holds"]]
    for m in matrices:
        cut = " or ".join(map(str, sorted({*_parts(m, ranks)})))
        blocks = (
            "a block of columns" if m.groups == 1 else f"a block of columns of each of {m.name}"
        )
        rows.append(
            [
                m.name,
                f"{m.rows} x {m.columns}",
                {
                    "whole": "all of it",
                    "columns": f"{m.rows} x {cut}, {blocks}",
                    "rows": f"{cut} x {m.columns}, a block of rows",
                    "sum": f"{m.rows} x {m.columns}, a summand",
                }[m.split if ranks > 1 else "whole"],
            ]
        )
    return "\n".join([title, table(rows, left=3)])


def _draw(matrices: list[Matrix], ranks: int, title: str) -> Picture:
    """Matrices in one line, each as large as it is in the same scale, or smaller to fit."""
    picture = Picture(title)
    gaps = sum(map(_gap, matrices))
    columns = sum(m.columns for m in matrices)
    tall = max(m.rows for m in matrices)
    cell = min((WIDTH - 8 - gaps) / columns, _TALL / tall)
    middle, left = picture.height + 24 + _TALL / 2, 0.0
    for m in matrices:
        gap = _gap(m)
        picture.text(left + gap / 2, middle, m.sign, 14 if len(m.sign) == 1 else SIZE, "middle")
        if m.operator and ranks > 1:
            picture.text(left + gap / 2, middle + 22, m.operator, 16, "middle", bold=True)
        left += gap
        wide, high = m.columns * cell, m.rows * cell
        top = middle - high / 2
        for (x, y, w, h), fill, name, hint in _blocks(m, ranks, cell):
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
    whole = ranks > 1 and any(m.split == "whole" for m in matrices)
    picture.key(fills | ({"on all ranks": QUIET} if whole else {}))
    if ranks > 1:
        said = " ".join(_OPERATORS[m.operator] for m in matrices if m.operator)
        picture.text(4, picture.height + 4, said, SMALL, ink="soft")
        picture.height += 16
    return picture


def _gap(m: Matrix) -> float:
    """Pixels before a matrix."""
    return max(_GAP, width(m.sign) + 24) if m.sign else 8


def _blocks(
    m: Matrix, ranks: int, cell: float
) -> Iterator[tuple[tuple[float, ...], Fill, str, str]]:
    """((left, top, width, height), how filled, word in it, hint) of a matrix's parts."""
    if ranks == 1:
        yield (0, 0, m.columns, m.rows), RANKS[0], "0", "rank 0 has all of it"
    elif m.split == "whole":
        yield (0, 0, m.columns, m.rows), QUIET, "all", "on all ranks"
    elif m.split == "sum":
        # Sheets of paper one over the other, rank 0's on top: of one shape, to be added
        step = min(max(_SHEET / cell, 0.45), 0.6 * m.rows / ranks)
        over = step * (ranks - 1)
        added = "0 + 1" if ranks == 2 else f"0 + … + {ranks - 1}"
        for rank in reversed(range(ranks)):
            box = (step * rank, step * rank, m.columns - over, m.rows - over)
            yield box, RANKS[rank], "" if rank else added, f"rank {rank} has a summand"
    else:
        start = 0
        for group in range(m.groups):
            for rank, size in enumerate(pieces(_length(m) // m.groups, ranks)):
                by_columns = m.split == "columns"
                box = (start, 0, size, m.rows) if by_columns else (0, start, m.columns, size)
                of = f" of {m.name.split(', ')[group]}" if m.groups > 1 else ""
                yield box, RANKS[rank], str(rank), f"rank {rank} has {size} {m.split}{of}"
                start += size
