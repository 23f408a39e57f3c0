"""What several methods take, over a ratio of two rates."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from .palette import LINES
from .view import View


def ratio_curves(
    ratios: Sequence[float],
    curves: Mapping[str, Sequence[float]],
    xlabel: str,
    ylabel: str,
    title: str,
    highest: float | None = None,
) -> View:
    """A line per method over `ratios` (logarithmic), and the same as a table.

    highest: where the picture ends; the table has all of it.
    """
    if len(curves) > len(LINES):
        raise ValueError(f"{len(LINES)} lines can be told apart, not {len(curves)}")
    width = max(12, *(len(name) + 2 for name in curves))
    rows = [title, f"{'ratio':>6}" + "".join(f"{name:>{width}}" for name in curves)]
    for ratio, *values in zip(ratios, *curves.values(), strict=True):
        rows.append(f"{ratio:6}" + "".join(f"{value:{width}.2f}" for value in values))
    figure = Figure(figsize=(6.5, 3.4))
    ax = figure.subplots()
    for (name, curve), (color, dashes) in zip(curves.items(), LINES, strict=False):
        ax.plot(ratios, curve, color=color, linestyle=dashes, label=name)
    ax.set(xscale="log", xlabel=xlabel, ylabel=ylabel, xticks=ratios, xticklabels=ratios)
    if highest is not None:
        ax.set_ylim(top=highest)
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    ax.set_title(title, fontsize=9, weight="bold")
    ax.legend()
    figure.tight_layout()
    return View(figure, "\n".join(rows))
