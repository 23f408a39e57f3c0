"""Who sends to whom: one row for each sender, one column for each receiver, runs side by side."""

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from course_lib.observe import Trace

from .lettering import letter
from .palette import INK, PAPER
from .scales import grid_lines, scale_y
from .view import View

_LEFT = 0.75  # inches for the names of rows
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


def _draw(matrices: Mapping[str, list[list[int]]]) -> Figure:
    most = max(max(map(max, matrix)) for matrix in matrices.values()) or 1
    side = 0.5 * max(3, *map(len, matrices.values()))
    wide, high = (side + _LEFT) * len(matrices) + 0.35, side + 0.65
    figure = Figure(figsize=(wide, high))
    for place, (name, matrix) in enumerate(matrices.items()):
        left = _LEFT + (side + _LEFT) * place
        ax = figure.add_axes((left / wide, 0.05 / high, side / wide, side / high))
        ax.imshow(matrix, cmap="Blues", vmin=0, vmax=1.25 * most)
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        ranks = range(len(matrix))
        letter(
            ax,
            [
                (target, source, _short(count), PAPER if count > 0.7 * most else INK)
                for source, row in enumerate(matrix)
                for target, count in enumerate(row)
                if count
            ],
            size=8,
        )
        scale_y(ax, {rank: f"rank {rank}" for rank in ranks}, size=8, ticks=False)
        above = ScaledTranslation(0, 0.1, figure.dpi_scale_trans)
        heads = [(rank, 1, f"to {rank}", INK) for rank in ranks]
        letter(ax, heads, size=8, transform=ax.get_xaxis_transform() + above)
        for axis in "xy":
            grid_lines(ax, [rank + 0.5 for rank in ranks[:-1]], axis)
        ax.set_title(name or _heaviest(matrix), fontsize=9, weight="bold", y=1, pad=18)
    return figure


def _heaviest(matrix: list[list[int]]) -> str:
    count, source, target = max(
        (count, -source, -target)
        for source, row in enumerate(matrix)
        for target, count in enumerate(row)
    )
    return f"most: {_short(count)} bytes, {-source} to {-target}" if count else "no messages"


def _short(count: int) -> str:
    """Bytes in at most five characters: 12, 4000, 12.5k, 3.2M."""
    if count < 10_000:
        return str(count)
    thousands = min(4, (len(str(count)) - 1) // 3)
    return f"{count / 1000**thousands:.3g}{' kMGT'[thousands]}"
