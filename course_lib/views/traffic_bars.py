"""Who sends how much: one bar a rank, runs side by side."""

from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from course_lib.observe import Traffic

from .areas import area, boxes, key
from .lettering import letter
from .palette import INK, SERIES
from .scales import round_numbers, scale_x, scale_y
from .units import size_text
from .view import View


def traffic_bars(traffic: Mapping[str, Traffic], per_tensor: int | None = None) -> View:
    """Bytes sent by every rank in each of the named runs, all of the same world size.

    With `per_tensor`, the bytes of the tensor that was reduced, amounts are counted in tensors.
    """
    if not 1 <= len(traffic) <= len(SERIES):
        raise ValueError(f"1 to {len(SERIES)} runs can be told apart, not {len(traffic)}")
    unit = per_tensor or 1
    sent = {name: [amount / unit for amount in run.sent] for name, run in traffic.items()}
    label = "tensors sent" if per_tensor else "bytes sent"
    text = "{:.3g}".format if per_tensor else size_text
    return View(_draw(sent, label, text), _text(sent, label))


def _text(sent: dict[str, list[float]], label: str) -> str:
    width = max(len(label), *(len(name) for name in sent))
    ranks = range(len(next(iter(sent.values()))))
    rows = [f"{label:<{width}}" + "".join(f"{f'rank {rank}':>10}" for rank in ranks)]
    rows += [
        f"{name:<{width}}" + "".join(f"{amount:>10.4g}" for amount in amounts)
        for name, amounts in sent.items()
    ]
    return "\n".join(rows)


def _draw(sent: dict[str, list[float]], label: str, text: Callable[[float], str]) -> Figure:
    figure = Figure(figsize=(6.6, 3.0))
    ax = figure.add_axes((0.11, 0.19, 0.87, 0.71))
    ranks = np.arange(len(next(iter(sent.values()))))
    highest = max(map(max, sent.values()))
    wide = 0.8 / len(sent)
    fills = dict(zip(sent, SERIES, strict=False))
    words = []
    for position, (name, amounts) in enumerate(sent.items()):
        left = ranks + (position - len(sent) / 2) * wide
        area(ax, boxes(left, 0, wide, amounts), fills[name], name)
        words += [(x + wide / 2, n, text(n), INK) for x, n in zip(left, amounts, strict=True)]
    above = ScaledTranslation(0, 0.07, figure.dpi_scale_trans)
    letter(ax, words, transform=ax.transData + above)
    ax.set(xlim=(-0.6, len(ranks) - 0.4), ylim=(0, 1.1 * highest or 1))
    ax.spines[["top", "right"]].set_visible(False)
    scale_x(ax, {rank: f"rank {rank}" for rank in ranks}, size=8)
    scale_y(ax, round_numbers(0, 1.1 * highest or 1, 6, text), label, size=8)
    name = max(sent, key=lambda name: max(sent[name]))
    rank, most = max(enumerate(sent[name]), key=lambda item: item[1])
    title = f"most {label}: {name}, rank {rank}, {text(most)}"
    ax.set_title(title, fontsize=9, weight="bold", y=1)
    key(figure, fills)
    return figure
