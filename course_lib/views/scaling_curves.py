"""What happens as devices are added, from a node to a thousand: times of algorithms, crossovers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from course_lib.simulate.cluster import CLUSTERS
from course_lib.simulate.collectives_on_cluster import collective_seconds
from course_lib.text import table as text_table

from .charts import Field, decades, name_curves, round_numbers
from .palette import STROKES, Fill, strokes
from .svg_drawing import SMALL, WIDTH, Picture
from .units import size_text, time_text
from .view import View
from .widgets import Control, Explorer, explore

Best = Literal["least", "most"]
_CHOOSE: Mapping[Best, Callable] = {"least": min, "most": max}
DEVICES = (8, 16, 32, 64, 128, 256, 512, 1024)


def scaling_curves(
    lines: Mapping[str, Callable[[int], float]],
    devices: Sequence[int] = DEVICES,
    title: str = "",
    label: str = "time",
    text: Callable[[float], str] = time_text,
    log: bool = True,
    best: Best | None = "least",
    count: str = "devices",
    lowest: float = 0.0,
    measured: Mapping[str, Mapping[int, float]] | None = None,
) -> View:
    """Curves `lines[name](devices) -> value`, seconds unless `label` and `text` say otherwise.

    best      text and picture say where the best line changes, the crossover; None: there is none
    count     what there are so many of, such as "servers"
    lowest    value at the bottom of a scale that is not logarithmic
    measured  values {devices: value} by the line that they belong to
    """
    if not 1 <= len(lines) <= len(STROKES):
        raise ValueError(f"1 to {len(STROKES)} lines can be told apart, not {len(lines)}")
    if not devices or min(devices) < 1:
        raise ValueError(f"devices = {list(devices)} must be numbers of at least 1")
    table = {name: [line(n) for n in devices] for name, line in lines.items()}
    said = _crossovers(table, devices, best, count)
    found = dict(measured or {})
    if unknown := found.keys() - table.keys():
        raise ValueError(f"measured, and no line: {', '.join(sorted(unknown))}")
    words = _text(table, devices, title, said, text, best, count, found)
    return View(_draw(table, devices, title, said, label, text, log, count, lowest, found), words)


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
        cluster=Control(list(CLUSTERS), "kind of node"),
        between=Control(
            [
                "10 GbE",
                "25 GbE",
                "100 GbE",
                "InfiniBand EDR",
                "InfiniBand HDR",
                "InfiniBand NDR",
            ],
            "link between nodes",
        ),
    )


SIZES = {size_text(nbytes): nbytes for nbytes in (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10)}

# ------------------------------------------------------------------------------------------------


def _crossovers(
    table: Mapping[str, Sequence[float]], devices: Sequence[int], best: Best | None, count: str
) -> str:
    """ "best: ring up to 64 devices, then hierarchical"."""
    if len(table) == 1 or best is None:
        return ""
    choose = _CHOOSE[best]
    names = [choose(table, key=lambda name: table[name][k]) for k in range(len(devices))]
    parts = [
        f"{names[k]} up to {devices[k]} {count}"
        for k in range(len(devices) - 1)
        if names[k] != names[k + 1]
    ]
    return "best: " + ", then ".join([*parts, names[-1] if parts else f"{names[-1]} throughout"])


def _text(
    table: Mapping[str, Sequence[float]],
    devices: Sequence[int],
    title: str,
    said: str,
    text: Callable[[float], str],
    best: Best | None,
    count: str,
    measured: Mapping[str, Mapping[int, float]],
) -> str:
    rows = [[count, *table]]
    for k, n in enumerate(devices):
        values = [column[k] for column in table.values()]
        mark = _CHOOSE[best](values) if best and len(values) > 1 else None
        rows.append([str(n), *(f"{'*' if v == mark else ''}{text(v)}" for v in values)])
    lines = [*([title] if title else []), text_table(rows, left=0), *([said] if said else [])]
    for name, points in measured.items():
        shown = ", ".join(f"{text(value)} on {n}" for n, value in points.items())
        lines.append(f"{name}, measured: {shown}")
    return "\n".join(lines)


def _draw(
    table: Mapping[str, Sequence[float]],
    devices: Sequence[int],
    title: str,
    said: str,
    label: str,
    text: Callable[[float], str],
    log: bool,
    count: str,
    lowest: float,
    measured: Mapping[str, Mapping[int, float]],
) -> Picture:
    picture = Picture(title)
    if said:
        picture.height = picture.paragraph(4, picture.height + 8, said, WIDTH - 8)
    values = [value for column in table.values() for value in column]
    low, high = (min(values) / 1.1, max(values) * 1.1) if log else (lowest, 1.05 * max(values))
    across = (min(devices) / 1.05, max(devices) * 1.05)
    field = Field(
        picture, 80, picture.height + 24, 730, 270, across, (low, high or 1.0), True, log
    )  # fmt: skip
    names = {float(n): str(n) for n in devices}
    field.marks_below(names, f"{count}, logarithmic", grid=True)
    marks = decades(low, high, text) if log else round_numbers(low, high, 7, text)
    field.marks_left(marks, f"{label}{', logarithmic' if log else ''}", grid=True)
    looks = strokes(table)
    for name, column in table.items():
        field.curve(list(zip(devices, column, strict=True)), looks[name], name, dots=True)
    drawn = set()
    for name, points in measured.items():
        for place in points.items():
            hint = f"{name}, measured: {text(place[1])}"
            size = 4 if place in drawn else 7  # what is measured alike lies on the other
            x, y = field.across(place[0]), field.up(place[1])
            _diamond(picture, x, y, looks[name].color, hint, size)
            drawn.add(place)
    name_curves(picture, looks)
    if measured:
        picture.height += 8
        _diamond(picture, 19, picture.height, "soft")
        picture.text(40, picture.height, "measured, in the colour of its line", SMALL)
        picture.height += 10
    return picture


def _diamond(
    picture: Picture, x: float, y: float, color: str, hint: str = "", size: float = 6
) -> None:
    corners = [(x - size, y), (x, y - size), (x + size, y), (x, y + size)]
    picture.shape(corners, Fill(color), hint)
