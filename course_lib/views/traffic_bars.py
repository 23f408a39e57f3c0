"""Who sends how much: one bar a rank, runs side by side."""

from collections.abc import Mapping

from matplotlib.figure import Figure

from course_lib.observe import Traffic
from course_lib.views.palette import SERIES
from course_lib.views.view import View


def traffic_bars(traffic: Mapping[str, Traffic], per_tensor: int | None = None) -> View:
    """Bytes sent by every rank in each of the named runs, all of the same world size.

    With `per_tensor`, the bytes of the tensor that was reduced, amounts are counted in tensors.
    """
    if not 1 <= len(traffic) <= len(SERIES):
        raise ValueError(f"1 to {len(SERIES)} runs can be told apart, not {len(traffic)}")
    unit = per_tensor or 1
    sent = {name: [amount / unit for amount in run.sent] for name, run in traffic.items()}
    label = "tensors sent" if per_tensor else "bytes sent"
    return View(_draw(sent, label), _text(sent, label))


def _text(sent: dict[str, list[float]], label: str) -> str:
    width = max(len(label), *(len(name) for name in sent))
    ranks = range(len(next(iter(sent.values()))))
    rows = [f"{label:<{width}}" + "".join(f"{f'rank {rank}':>10}" for rank in ranks)]
    rows += [
        f"{name:<{width}}" + "".join(f"{amount:>10.4g}" for amount in amounts)
        for name, amounts in sent.items()
    ]
    return "\n".join(rows)


def _draw(sent: dict[str, list[float]], label: str) -> Figure:
    figure = Figure(figsize=(6.6, 2.8))
    ax = figure.add_axes((0.1, 0.1, 0.88, 0.78))
    width = 0.8 / len(sent)
    for position, (name, amounts) in enumerate(sent.items()):
        offset = (position - (len(sent) - 1) / 2) * width
        bars = ax.bar(
            [rank + offset for rank in range(len(amounts))],
            amounts,
            width,
            label=name,
            color=SERIES[position].color,
            hatch=SERIES[position].hatch,
            edgecolor="white",
        )
        ax.bar_label(bars, fmt="%.3g", fontsize=7)
    ax.set_xticks(range(len(amounts)), [f"rank {rank}" for rank in range(len(amounts))])
    ax.set_ylabel(label)
    name = max(sent, key=lambda name: max(sent[name]))
    rank, most = max(enumerate(sent[name]), key=lambda item: item[1])
    ax.set_title(f"most {label}: {name}, rank {rank}, {most:.3g}", fontsize=9, weight="bold")
    ax.legend(fontsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    return figure
