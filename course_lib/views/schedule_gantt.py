"""What each rank does when: timelines one above the other, simulated, replayed or measured.

Forward, backward and the halves of a backward are told apart by lightness as well as by colour, so
that they stay apart in grey print; the number in a box is the microbatch, white space is idle.
Other computation is grey with its name; what went over the wires is a thin line below.
"""

import itertools
from collections.abc import Mapping
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from course_lib.observe.timeline import COMPUTE, Timeline
from course_lib.techniques.schedules import Op

from .areas import key
from .lettering import Word, letter
from .palette import OPERATIONS, QUIET, Fill
from .scales import round_numbers, scale_x, scale_y
from .units import time_text
from .view import View

NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
_OTHER, _WIRE = Fill(QUIET), Fill("#555555")
_FILLS = OPERATIONS | {"": _OTHER, "wire": _WIRE}
_LEGEND = NAMES | {"": "other computation", "wire": "on the wires"}
_MOST_LABELS = 4000
_WIDTH, _ROW, _HEAD, _FOOT = 9.0, 0.26, 1.2, 0.75  # inches, inches a rank; rows, inches
_LETTER = 0.065  # inches that a letter needs
_SHARE = 0.905  # of the width is time


def schedule_gantt(
    timelines: Timeline | Mapping[str, Timeline],
    title: str = "",
    unit: Literal["", "s"] = "",
    scale: Literal["shared", "each"] = "shared",
) -> View:
    """One timeline, or several by name, with bubble and peak of microbatches in flight.

    unit   "s" where times are seconds, as of recordings and replays; else units of the given costs
    scale  "each": every timeline has the whole width, to compare a measured run with a simulated
           one, whose times are in other units
    """
    named = {title: timelines} if isinstance(timelines, Timeline) else dict(timelines)
    if not named:
        raise ValueError("there is no timeline to show")
    if unit not in ("", "s") or scale not in ("shared", "each"):
        raise ValueError(f"unit = {unit!r} must be '' or 's', scale = {scale!r} shared or each")
    text = "\n\n".join(_text(name, timeline, unit) for name, timeline in named.items())
    return View(_draw(named, unit, scale), text)


def summary(timeline: Timeline, unit: str = "") -> str:
    """The numbers of a timeline in one line."""
    length = time_text(timeline.makespan) if unit == "s" else f"{timeline.makespan:g}"
    if not any(timeline.busy):
        return f"{length} long, no computation"
    idle = (
        f"{length} long, idle {timeline.bubble_fraction:.1%} of all the time "
        f"({timeline.bubble_over_ideal:.1%} of the working time)"
    )
    held = timeline.peak_in_flight
    if not held:
        return idle
    if len(held) > 8:
        return f"{idle}, in flight at most {max(held)} on a stage"
    return f"{idle}, in flight {' '.join(map(str, held))}"


# ------------------------------------------------------------------------------------------------


def _text(name: str, timeline: Timeline, unit: str) -> str:
    numbers = summary(timeline, unit)
    head = [f"{name}: {numbers}" if name else numbers]
    whole = all(float(end).is_integer() for track in timeline.tracks for end in track.ends)
    # Measured times have no unit in which they are legible: the order of each rank has to do.
    body = timeline.text() if whole else _orders(timeline)
    return "\n".join([*head, body])


def _orders(timeline: Timeline) -> str:
    rows: dict[int, list[str]] = {rank: [] for rank in range(timeline.world_size)}
    for track in timeline.tracks:
        if track.name == COMPUTE:
            runs = itertools.groupby(map(str, track.what))
            counted = ((name, sum(1 for _ in same)) for name, same in runs)
            rows[track.rank] += [f"{name} x{n}" if n > 1 else name for name, n in counted]
    return "\n".join(f"rank {rank} | {' '.join(names)}" for rank, names in rows.items())


def _draw(named: Mapping[str, Timeline], unit: str, scale: str) -> Figure:
    """All panels in one Axes, which draws far faster than one for each."""
    longest = max(timeline.makespan for timeline in named.values()) or 1
    height = sum(timeline.world_size + _HEAD + 0.3 for timeline in named.values())
    figure = Figure(figsize=(_WIDTH, _ROW * height + _FOOT))
    foot = _FOOT / figure.get_figheight()
    ax = figure.add_axes((0.07, foot, _SHARE, 1 - foot))
    ax.set(xlim=(0, longest), ylim=(height, 0))
    ax.spines[["left", "right", "top"]].set_visible(False)
    if scale == "each" and len(named) > 1:
        quarters = {longest * k / 4: f"{25 * k}%" for k in range(5)}
        scale_x(ax, quarters, "time, of each run's own length")
    else:
        text = time_text if unit == "s" else "{:g}".format
        label = "time" if unit == "s" else "time, in units of the costs"
        scale_x(ax, round_numbers(0, longest, 6, text), label)
    ranks: dict[float, str] = {}
    boxes: dict[str, list] = {}
    words: list[Word] = []
    top = 0.0
    for name, timeline in named.items():
        numbers = summary(timeline, unit)
        head = f"{name}: {numbers}" if name else numbers
        ax.text(0, top + 0.85, head, fontsize=8, weight="bold")
        top += _HEAD
        stretch = longest / (timeline.makespan or 1) if scale == "each" else 1.0
        _panel(timeline, top, stretch, longest, boxes, words)
        ranks |= {top + r + 0.5: f"rank {r}" for r in range(timeline.world_size)}
        end = timeline.makespan * stretch
        ax.plot([0, end], [top + timeline.world_size] * 2, color="#999999", lw=0.6)
        top += timeline.world_size + 0.3
    _fill(ax, boxes)
    if len(words) <= _MOST_LABELS:
        letter(ax, words)
    scale_y(ax, ranks, size=8, ticks=False)
    key(figure, {_LEGEND[kind]: fill for kind, fill in _FILLS.items() if kind in boxes})
    return figure


def _panel(
    timeline: Timeline, top: float, stretch: float, longest: float, boxes: dict, words: list[Word]
) -> None:
    """Add the boxes of a timeline, by kind, and what stands in them."""
    plain = _one_stage_a_rank(timeline)
    wires = any(track.name != COMPUTE for track in timeline.tracks)
    bottom = 0.72 if wires else 0.94
    inches = _WIDTH * _SHARE / longest
    for rank, start, stop, what, track in timeline.spans:
        start, stop, y = start * stretch, stop * stretch, top + rank
        if track != COMPUTE:
            boxes.setdefault("wire", []).append(_box(start, stop, y + 0.78, y + 0.94))
            continue
        kind, text = "", str(what)
        if isinstance(what, tuple):
            kind, text = what[0], str(what[2]) if plain else f"{what[1]}.{what[2]}"
        boxes.setdefault(kind, []).append(_box(start, stop, y + 0.06, y + bottom))
        if (stop - start) * inches > _LETTER * len(text):
            words.append(((start + stop) / 2, y + (0.06 + bottom) / 2, text, _FILLS[kind].ink))


def _box(left: float, right: float, top: float, bottom: float) -> list[tuple[float, float]]:
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def _fill(ax: Axes, boxes: Mapping[str, list]) -> None:
    for kind, corners in boxes.items():
        edge = "none" if kind == "wire" else "white"
        color = _FILLS[kind].color
        ax.add_collection(
            PolyCollection(np.array(corners), facecolors=color, edgecolors=edge, linewidths=0.5),
            autolim=False,
        )


def _one_stage_a_rank(timeline: Timeline) -> bool:
    return all(
        what[1] == track.rank
        for track in timeline.tracks
        for what in track.what
        if isinstance(what, Op)
    )
