"""What hides behind backward: device and network of a data parallel step, on one scale of time."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from course_lib.observe.timeline import COMMUNICATION, COMPUTE, Timeline
from course_lib.simulate import costs
from course_lib.simulate.data_parallel import Layer, bucket_layers, data_parallel_step

from .areas import key
from .lettering import letter
from .palette import OPERATIONS, STEP
from .scales import scale_y
from .units import size_text, time_text
from .view import View

_FILLS = {"F": OPERATIONS["F"], "B": OPERATIONS["B"], "bucket": STEP["data"]}
_LEGEND = {"F": "forward", "B": "backward", "bucket": "all-reduce of a bucket"}
_WIDTH, _ROW, _LEFT = 9.0, 0.3, 0.09  # inches, inches, share of the width
_LETTER = 0.075  # inches that a letter needs


def overlap(steps: Mapping[str, Timeline]) -> View:
    """Steps by name, one above the other: when layers compute, and when buckets travel.

    Of timelines with several ranks the first is shown; all do the same.
    """
    if not steps:
        raise ValueError("there is no step to show")
    return View(_draw(steps), "\n".join(line for item in steps.items() for line in _text(*item)))


def overlap_step(
    layers: Sequence[Layer],
    bucket_MB: float = 25,
    first_MB: float = 1,
    ranks: int = 64,
    gigabits: float = 25,
    latency_us: float = 14,
) -> View:
    """One step of `layers` (in seconds) with these buckets, beside one that sends all at the end.

    All-reduces are rings over links of this speed and latency.
    """

    def all_reduce(nbytes: float) -> float:
        return costs.ring_all_reduce(ranks, nbytes, latency_us * 1e-6, 8e-9 / gigabits)

    def step(largest: float, first: float | None = None) -> Timeline:
        return data_parallel_step(layers, bucket_layers(layers, largest, first), all_reduce)

    everything = sum(layer.nbytes for layer in layers)
    name = f"buckets of {size_text(bucket_MB * 1e6)}, the first of {size_text(first_MB * 1e6)}"
    view = overlap({name: step(bucket_MB * 1e6, first_MB * 1e6), "in one": step(everything)})
    view.text = f"{ranks} ranks, {gigabits} Gbit/s, {latency_us} µs a message\n{view.text}"
    return view


# ------------------------------------------------------------------------------------------------


def exposed(step: Timeline) -> float:
    """Time by which communication makes the step longer than its computation."""
    return step.makespan - max(step.busy)


def _text(name: str, step: Timeline) -> list[str]:
    buckets = _spans(step, COMMUNICATION)
    moving = sum(end - start for start, end, _ in buckets)
    lines = [f"{name}: {_summary(step)}"]
    if moving:
        hidden = 1 - exposed(step) / moving
        lines.append(
            f"  {len(buckets)} all-reduces, {time_text(moving)} in all, {hidden:.0%} of it hidden"
        )
    return lines


def _summary(step: Timeline) -> str:
    computing = max(step.busy)
    return (
        f"{time_text(step.makespan)} for {time_text(computing)} of computation, "
        f"efficiency {computing / step.makespan:.0%}"
    )


def _spans(step: Timeline, track: str) -> list[tuple[float, float, str]]:
    return [
        (span.start, span.end, str(span.what))
        for span in step.spans
        if span.rank == 0 and span.track == track
    ]


def _draw(steps: Mapping[str, Timeline]) -> Figure:
    rows = 3.6 * len(steps) + 1
    figure = Figure(figsize=(_WIDTH, _ROW * rows))
    ax = figure.add_axes((_LEFT, 0, 0.99 - _LEFT, 1))
    end = max(step.makespan for step in steps.values()) or 1
    ax.set(xlim=(0, end), ylim=(rows, 0))
    ax.axis("off")
    boxes: dict[str, list] = {}
    words, tracks = [], {}
    for number, (name, step) in enumerate(steps.items()):
        top = 3.6 * number
        ax.text(0, top + 0.8, f"{name}: {_summary(step)}", fontsize=8, weight="bold")
        for row, track in enumerate((COMPUTE, COMMUNICATION)):
            y = top + 1.1 + row
            tracks[y + 0.47] = ("device", "network")[row]
            for place, (start, stop, what) in enumerate(_spans(step, track)):
                kind = "bucket" if track == COMMUNICATION else what[0]
                corners = [(start, y), (stop, y), (stop, y + 0.9), (start, y + 0.9)]
                boxes.setdefault(kind if kind in _FILLS else "F", []).append(corners)
                text = str(place) if track == COMMUNICATION else what.split()[-1]
                if (stop - start) / end * _WIDTH * (0.99 - _LEFT) > _LETTER * len(text):
                    words.append(((start + stop) / 2, y + 0.47, text, _FILLS[kind].ink))
        ax.plot([step.makespan] * 2, [top + 1.0, top + 3.1], color="black", lw=1)
    for kind, corners in boxes.items():
        fill = _FILLS[kind]
        ax.add_collection(
            PolyCollection(
                np.array(corners), facecolors=fill.color, edgecolors="white", linewidths=0.5
            ),
            autolim=False,
        )
    letter(ax, words)
    scale_y(ax, tracks, size=8, ticks=False)
    key(figure, {_LEGEND[kind]: fill for kind, fill in _FILLS.items() if kind in boxes})
    return figure
