"""What a picture holds, read back from it."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.path import Path

from course_lib.views.lettering import Lettering


def outlines(ax: Axes) -> dict[str, list[np.ndarray]]:
    """The corners, (n, 2), of every outline, by what it stands for."""
    return {str(patch.get_label()): list(_parts(patch.get_path())) for patch in ax.patches}


def _parts(path: Path) -> Iterator[np.ndarray]:
    starts = np.flatnonzero(path.codes == Path.MOVETO)
    for part in np.split(path.vertices, starts[1:]):
        yield part[:-1]  # the last one only closes it


def spans(ax: Axes, axis: int = 0) -> dict[str, list[tuple[float, float]]]:
    """From where to where every box reaches, across (0) or up (1), by what it stands for."""
    return {
        name: [(float(box[:, axis].min()), float(box[:, axis].max())) for box in boxes]
        for name, boxes in outlines(ax).items()
    }


def curves(ax: Axes) -> list[Line2D]:
    """The lines that have a name: not those of scales."""
    return [line for line in ax.lines if str(line.get_label() or "_")[0] != "_"]


def places(ax: Axes) -> dict[str, list[tuple[float, float]]]:
    """Where each text stands, in the coordinates in which it was placed."""
    found: dict[str, list[tuple[float, float]]] = {}
    for artist in ax.artists:
        if isinstance(artist, Lettering):
            for x, y, text, _ in artist.words:
                found.setdefault(text, []).append((x, y))
    return found
