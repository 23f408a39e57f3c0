"""What happens as devices are added, from a node to a thousand: times of algorithms, crossovers."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.figure import Figure

from course_lib.simulate.cluster import CLUSTERS
from course_lib.simulate.collectives import collective_seconds

from .explore import Explorer, explore
from .palette import LINES
from .scales import decades, round_numbers, scale_x, scale_y
from .units import size_text, time_text
from .view import View

DEVICES = (8, 16, 32, 64, 128, 256, 512, 1024)
_MARKERS = "osD^v"


def scaling_curves(
    lines: Mapping[str, Callable[[int], float]],
    devices: Sequence[int] = DEVICES,
    title: str = "",
    label: str = "time",
    text: Callable[[float], str] = time_text,
    log: bool = True,
) -> View:
    """Curves `lines[name](devices) -> value`, seconds unless `label` and `text` say otherwise.

    Text and picture say where the least line changes: the crossover.
    """
    if not 1 <= len(lines) <= len(LINES):
        raise ValueError(f"1 to {len(LINES)} lines can be told apart, not {len(lines)}")
    if not devices or min(devices) < 1:
        raise ValueError(f"devices = {list(devices)} must be numbers of at least 1")
    table = {name: [line(n) for n in devices] for name, line in lines.items()}
    said = _crossovers(table, devices)
    words = _text(table, devices, title, said, text)
    return View(_draw(table, devices, title, said, label, text, log), words)


def all_reduce_scaling(
    size: str = "100 MB", cluster: str = "DGX A100", between: str = "InfiniBand HDR"
) -> View:
    """An all-reduce of `size` on ever more nodes: ring, tree and hierarchical."""
    machine, nbytes = CLUSTERS[cluster].with_links(between=between), SIZES[size]

    def seconds(algorithm: str) -> Callable[[int], float]:
        def line(n: int) -> float:
            ours = machine.with_nodes(-(-n // machine.devices_per_node))
            return collective_seconds(ours, "all_reduce", range(n), nbytes, algorithm)

        return line

    lines = {name: seconds(name) for name in ("ring", "tree", "hierarchical")}
    first = machine.devices_per_node
    devices = [n for n in DEVICES if n % first == 0]
    return scaling_curves(lines, devices, f"all-reduce of {size} on {cluster}, {between}")


def all_reduce_explorer() -> Explorer:
    """`all_reduce_scaling` under sliders."""
    return explore(
        all_reduce_scaling,
        size=list(SIZES),
        cluster=list(CLUSTERS),
        between=[
            "10 GbE",
            "25 GbE",
            "100 GbE",
            "InfiniBand EDR",
            "InfiniBand HDR",
            "InfiniBand NDR",
        ],
    )


SIZES = {size_text(nbytes): nbytes for nbytes in (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10)}

# ------------------------------------------------------------------------------------------------


def _crossovers(table: Mapping[str, Sequence[float]], devices: Sequence[int]) -> str:
    """'ring is least up to 64 devices, then hierarchical'."""
    if len(table) == 1:
        return ""
    least = [min(table, key=lambda name: table[name][k]) for k in range(len(devices))]
    parts = [
        f"{least[k]} up to {devices[k]} devices"
        for k in range(len(devices) - 1)
        if least[k] != least[k + 1]
    ]
    return "least: " + ", then ".join([*parts, least[-1] if parts else f"{least[-1]} throughout"])


def _text(
    table: Mapping[str, Sequence[float]],
    devices: Sequence[int],
    title: str,
    said: str,
    text: Callable[[float], str],
) -> str:
    rows = [["devices", *table]]
    for k, n in enumerate(devices):
        values = [column[k] for column in table.values()]
        mark = min(values) if len(values) > 1 else None
        rows.append([str(n), *(f"{'*' if v == mark else ''}{text(v)}" for v in values)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{c:>{w}}" for c, w in zip(r, widths, strict=True)) for r in rows]
    return "\n".join([*([title] if title else []), *lines, *([said] if said else [])])


def _draw(
    table: Mapping[str, Sequence[float]],
    devices: Sequence[int],
    title: str,
    said: str,
    label: str,
    text: Callable[[float], str],
    log: bool,
) -> Figure:
    figure = Figure(figsize=(6.6, 3.8))
    ax = figure.add_axes((0.13, 0.13, 0.85, 0.73))
    for (name, values), (color, dashes), marker in zip(
        table.items(), LINES, _MARKERS, strict=False
    ):
        ax.plot(
            devices, values, color=color, linestyle=dashes, marker=marker, markersize=4, label=name
        )
    ax.set_xscale("log")
    if log:
        ax.set_yscale("log")
    ax.minorticks_off()
    scale_x(ax, {n: str(n) for n in devices}, "devices", size=8, grid=True)
    low, high = ax.get_ylim()
    marks = decades(low, high, text) if log else round_numbers(low, high, 7, text)
    scale_y(ax, marks, label, size=8, grid=True)
    ax.legend(fontsize=8)
    figure.text(0.02, 0.955, title, fontsize=9, weight="bold", va="center")
    figure.text(0.02, 0.9, said, fontsize=8, va="center")
    return figure
