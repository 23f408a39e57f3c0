"""What each rank does when: timelines of pipelines, one above the other, on one scale of time.

Forward, backward and the halves of a backward are told apart by lightness as well as by colour, so
that they stay apart in grey print; the number in a box is the microbatch, white space is idle.
"""

from collections.abc import Mapping

from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course_lib.observe.timeline import COMPUTE, Timeline
from course_lib.techniques.schedules import Op
from course_lib.views.view import View

# From Okabe and Ito's palette; Y of luminance falls from F to B, halves lie between.
COLORS = {"F": "#8fc9ec", "B": "#0072b2", "I": "#d55e00", "W": "#f2d264"}
NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
_DARK = "BI"
_OTHER = "#bbbbbb"  # computation that is no operation of a schedule
_MOST_LABELS = 700
_ROW = 0.26  # inches


def schedule_gantt(timelines: Timeline | Mapping[str, Timeline], title: str = "") -> View:
    """One timeline, or several by name, with bubble and peak of microbatches in flight."""
    named = {title: timelines} if isinstance(timelines, Timeline) else dict(timelines)
    if not named:
        raise ValueError("there is no timeline to show")
    return View(_draw(named), "\n\n".join(_text(*item) for item in named.items()))


def summary(timeline: Timeline) -> str:
    """The numbers of a timeline in one line."""
    held = " ".join(map(str, timeline.peak_in_flight))
    if len(timeline.peak_in_flight) > 8:
        held = f"at most {max(timeline.peak_in_flight)} on a stage"
    return (
        f"{timeline.makespan:g} long, idle {timeline.bubble_fraction:.1%} of all the time "
        f"({timeline.bubble_over_ideal:.1%} of the working time), in flight {held}"
    )


# ------------------------------------------------------------------------------------------------


def _text(name: str, timeline: Timeline) -> str:
    head = [f"{name}: {summary(timeline)}" if name else summary(timeline)]
    whole = all(float(end).is_integer() for track in timeline.tracks for end in track.ends)
    # Measured times have no unit in which they are legible: the order of each rank has to do.
    body = timeline.text() if whole else _orders(timeline)
    return "\n".join([*head, body])


def _orders(timeline: Timeline) -> str:
    rows: dict[int, list[str]] = {rank: [] for rank in range(timeline.world_size)}
    for span in timeline.spans:
        if span.track == COMPUTE:
            rows[span.rank].append(str(span.what))
    return "\n".join(f"rank {rank} | {' '.join(names)}" for rank, names in rows.items())


def _draw(named: Mapping[str, Timeline]) -> Figure:
    """All panels in one Axes, which draws far faster than one for each."""
    end = max(timeline.makespan for timeline in named.values()) or 1
    height = sum(timeline.world_size + 1.5 for timeline in named.values())
    figure = Figure(figsize=(9, _ROW * height + 0.35))
    ax = figure.add_axes((0.07, 0, 0.92, 1))
    ax.set(xlim=(0, end), ylim=(height + 0.35 / _ROW, 0))
    ax.axis("off")
    boxes: dict[str, list] = {}
    labels: list[tuple[float, float, str, str, float]] = []
    top = 0.0
    for name, timeline in named.items():
        head = f"{name}: {summary(timeline)}" if name else summary(timeline)
        ax.text(0, top + 0.85, head, fontsize=8, weight="bold")
        top += 1.2
        for rank in range(timeline.world_size):
            ax.text(
                -0.006 * end, top + rank + 0.5, f"rank {rank}", fontsize=8, ha="right", va="center"
            )
        ax.plot([0, timeline.makespan], [top + timeline.world_size] * 2, color="#999999", lw=0.6)
        plain = _one_stage_a_rank(timeline)
        for rank, start, stop, what, track in timeline.spans:
            if track != COMPUTE:
                continue
            kind = what[0] if isinstance(what, tuple) else ""
            y = top + rank
            boxes.setdefault(kind, []).append(
                [(start, y + 0.06), (stop, y + 0.06), (stop, y + 0.94), (start, y + 0.94)]
            )
            if isinstance(what, tuple):
                text = str(what[2]) if plain else f"{what[1]}.{what[2]}"
                labels.append(((start + stop) / 2, y + 0.52, text, kind, stop - start))
        top += timeline.world_size + 0.3
    for kind, corners in boxes.items():
        color = COLORS.get(kind, _OTHER)
        ax.add_collection(
            PolyCollection(corners, facecolors=color, edgecolors="white", linewidths=0.5)
        )
    if len(labels) <= _MOST_LABELS:
        for x, y, text, kind, width in labels:
            if width / end * 9 * 0.92 > 0.075 * len(text):  # inches that it has and that it needs
                ax.text(
                    x, y, text, fontsize=7, ha="center", va="center",
                    color="white" if kind in _DARK else "black",
                )  # fmt: skip
    patches = [Patch(color=COLORS[kind], label=NAMES[kind]) for kind in COLORS if kind in boxes]
    figure.legend(handles=patches, loc="lower left", ncols=4, fontsize=8, frameon=False)
    return figure


def _one_stage_a_rank(timeline: Timeline) -> bool:
    return all(
        what[1] == track.rank
        for track in timeline.tracks
        for what in track.what
        if isinstance(what, Op)
    )
