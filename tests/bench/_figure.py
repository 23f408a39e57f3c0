"""The figure of the page: every comparison on one axis."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from tests.bench._runs import Compared


def draw(named: Sequence[tuple[str, Compared]]) -> Figure:
    """A dot for the median of each run, a bar for the quartiles, and a tick at the limit."""
    figure = Figure(figsize=(8, 0.24 * len(named) + 1.1), layout="constrained")
    axes = figure.subplots()
    for line, (_, compared) in enumerate(named):
        low, high = compared.pooled.quartiles
        colour = "#0072b2" if compared.met else "#d55e00"
        axes.plot([low, high], [line, line], color=colour, linewidth=3, alpha=0.4)
        for m in compared.runs:
            axes.plot(m.median, line, marker="o" if m.met else "D", color=colour, markersize=5)
        if compared.limit:
            axes.plot(compared.limit, line, marker="|", color="black", markersize=11)
        if compared.floor:
            axes.plot(compared.floor.median, line, marker=">", color="grey", markersize=5)
    axes.set_yticks(range(len(named)), [name for name, _ in named], fontsize=7)
    # From a thirtieth of theirs to six times theirs: twice as fast is as far as half as fast.
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:.2g}")
    axes.set_ylim(len(named) - 0.5, -0.5)
    axes.axvline(1, color="grey", linewidth=0.8, zorder=0)
    axes.set_xlabel(
        "ratio, such as our time to theirs; a dot is a run, a tick is the limit, a diamond has"
        " missed it\na grey triangle is what the parts that cannot be left out take",
        fontsize=8,
    )
    axes.set_title("Left of its tick is fast enough", fontsize=10)
    return figure
