"""Many short words in a picture, fast.

A matplotlib Text takes about a millisecond to draw, so a schedule of 500 operations would take half
a second. Here equal words share one outline, which is stamped wherever the word stands.
"""

import functools
from collections.abc import Iterable

from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import TextPath
from matplotlib.transforms import Affine2D

Word = tuple[float, float, str, str]  # x, y, text, colour
_CAPITALS = 0.73  # height of capitals and digits in the size of the font


def letter(ax: Axes, words: Iterable[Word], size: float = 7) -> None:
    """Write each text centred on its place, in data coordinates; `size` in points."""
    places: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for x, y, text, color in words:
        places.setdefault((text, color), []).append((x, y))
    for (text, color), offsets in places.items():
        stamp = PathCollection(
            [_outline(text, size)],
            sizes=(1,),
            offsets=offsets,
            offset_transform=ax.transData,
            facecolors=color,
            linewidths=0,
            zorder=3,
            clip_on=False,
            label=f"_{text}",  # an underscore keeps it out of legends
        )
        # As Axes.scatter does: outlines are in points, whatever the axes show.
        stamp.set_transform(Affine2D())
        ax.add_collection(stamp, autolim=False)


def lettered(ax: Axes) -> list[str]:
    """All that was written on `ax`, a text as often as it stands there."""
    return [
        str(stamp.get_label())[1:]
        for stamp in ax.collections
        if isinstance(stamp, PathCollection) and str(stamp.get_label()).startswith("_")
        for _ in stamp.get_offsets()
    ]


@functools.lru_cache(maxsize=2000)
def _outline(text: str, size: float) -> Path:
    path = TextPath((0, 0), text, size=size, prop=FontProperties(family="DejaVu Sans"))
    width = path.get_extents().width if len(path.vertices) else 0
    return path.transformed(Affine2D().translate(-width / 2, -_CAPITALS * size / 2))
