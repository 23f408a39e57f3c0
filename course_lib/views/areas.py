"""Filled outlines of one kind, drawn as one: a patch each would take ten times as long."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.transforms import Transform
from numpy.typing import ArrayLike

from .lettering import letter, width
from .palette import INK, Fill

_SWATCH, _GAP = 0.22, 0.11  # inches
_LINE = 0.165  # inches from one line of a key to the next


def area(
    on: Axes | Figure,
    outlines: Iterable[np.ndarray],
    fill: Fill,
    label: str = "",
    edge: float = 0.5,
    transform: Transform | None = None,
) -> None:
    """Fill outlines, each of shape (corners, 2), with a white edge of `edge` points.

    transform  of the corners; they are in data coordinates of axes if there is none
    """
    vertices, codes = [], []
    for outline in outlines:
        vertices += [outline, outline[:1]]
        turns = np.full(len(outline) + 1, Path.LINETO, dtype=Path.code_type)
        turns[0], turns[-1] = Path.MOVETO, Path.CLOSEPOLY
        codes.append(turns)
    if not vertices:
        return
    patch = PathPatch(
        Path(np.concatenate(vertices), np.concatenate(codes)),
        facecolor=fill.color, hatch=fill.hatch or None, edgecolor="white", linewidth=edge,
        label=label,
    )  # fmt: skip
    if transform is not None:
        patch.set_transform(transform)
    on.add_artist(patch)  # unlike add_patch, looks for no limits


def boxes(left: ArrayLike, low: ArrayLike, wide: ArrayLike, high: ArrayLike) -> np.ndarray:
    """Outlines of rectangles, (n, 4, 2), from numbers or one for each."""
    x, y, w, h = np.broadcast_arrays(*(np.atleast_1d(a) for a in (left, low, wide, high)))
    corners = [(x, y), (x + w, y), (x + w, y + h), (x, y + h)]
    return np.stack([np.stack(corner, axis=-1) for corner in corners], axis=1).astype(float)


def stack(
    ax: Axes, parts: Mapping[str, Sequence[float]], fills: Mapping[str, Fill], thick: float = 0.72
) -> None:
    """Horizontal bars at 0, 1, ...: `parts[name]` has a length for each, end to end in order."""
    starts = 0.0
    for name, lengths in parts.items():
        low = np.arange(len(lengths)) - thick / 2
        area(ax, boxes(starts, low, lengths, thick), fills[name], name)
        starts = starts + np.array(lengths, dtype=float)


def key(
    figure: Figure,
    fills: Mapping[str, Fill],
    left: float = 0.1,
    columns: int | None = None,
    size: float = 8,
) -> float:
    """What fills mean, at the bottom of a figure from `left` inches on; returns where it ends.

    columns: of names, line by line; without them all stand in one line.
    """
    names = list(fills)
    columns = columns or max(1, len(names))
    lines = -(-len(names) // columns)
    words = []
    for column in range(columns):
        for line, name in enumerate(names[column::columns]):
            y = 0.13 + _LINE * (lines - 1 - line)
            high = 0.7 * size / 72
            area(
                figure, boxes(left, y - high / 2, _SWATCH, high), fills[name],
                transform=figure.dpi_scale_trans,
            )  # fmt: skip
            words.append((left + _SWATCH + _GAP, y, name, INK))
        longest = max((width(name, size) for name in names[column::columns]), default=0.0)
        left += _SWATCH + 3 * _GAP + longest / 72
    letter(figure, words, size, "left", transform=figure.dpi_scale_trans)
    return left
