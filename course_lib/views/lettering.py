"""Many short words in a picture, fast.

A matplotlib Text takes about a millisecond to draw, and a tick with its label two, so a schedule of
500 operations would take a second. Here equal words share one outline, which is stamped wherever
the word stands.
"""

import functools
from collections.abc import Iterable
from typing import Literal

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D, Transform

Word = tuple[float, float, str, str]  # x, y, text, colour
Align = Literal["left", "center", "right"]
_CAPITALS = 0.73  # height of capitals and digits in the size of the font


class Lettering(Artist):
    """Words of one size, drawn over the boxes and lines around them."""

    zorder = 3

    def __init__(self, words: Iterable[Word], size: float, align: Align, bold: bool):
        super().__init__()
        self.words = list(words)
        self._shape = size, align, bold

    def draw(self, renderer: RendererBase) -> None:
        """Stamp every word; called by matplotlib."""
        places: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for x, y, text, color in self.words:
            places.setdefault((text, color), []).append((x, y))
        pixels = renderer.points_to_pixels(1.0)  # a point's
        down = round(_CAPITALS / 2 * self._shape[0] * pixels)  # whole ones keep letters sharp
        from_points = Affine2D().scale(pixels).translate(0, -down)
        place = self.get_transform()
        gc = renderer.new_gc()
        gc.set_linewidth(0)
        for (text, color), offsets in places.items():
            outline, ink = _outline(text, *self._shape), to_rgba(color)
            spots = Path(place.transform_non_affine(np.array(offsets)))
            renderer.draw_markers(gc, outline, from_points, spots, place.get_affine(), ink)
        gc.restore()


def letter(
    on: Axes | Figure,
    words: Iterable[Word],
    size: float = 7,
    align: Align = "center",
    bold: bool = False,
    transform: Transform | None = None,
) -> None:
    """Write each text on its place, in the middle of its height; `size` in points.

    transform  of the places; they are in data coordinates of axes if there is none
    """
    stamps = Lettering(words, size, align, bold)
    if transform is not None:
        stamps.set_transform(transform)
    on.add_artist(stamps)


def lettered(on: Axes | Figure) -> list[str]:
    """All that was written on `on`, a text as often as it stands there."""
    return [word[2] for artist in on.artists if isinstance(artist, Lettering)
            for word in artist.words]  # fmt: skip


@functools.lru_cache(maxsize=2000)
def width(text: str, size: float, bold: bool = False) -> float:
    """Points from the left end of a text to its right end."""
    path = _outline(text, size, "left", bold)
    return float(np.ptp(path.vertices[:, 0])) if len(path.vertices) else 0.0


@functools.lru_cache(maxsize=2000)
def _outline(text: str, size: float, align: Align, bold: bool) -> Path:
    if align != "left":
        share = 1.0 if align == "right" else 0.5
        back = Affine2D().translate(-share * width(text, size, bold), 0)
        return _outline(text, size, "left", bold).transformed(back)
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    return TextPath((0, 0), text, size=size, prop=font)
