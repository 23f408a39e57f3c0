"""What each rank does when: timelines one above the other, simulated, replayed or measured.

Forward, backward and the halves of a backward are told apart by lightness as well as by colour, so
that they stay apart in grey print; the number in a box is the microbatch, and what is pale is the
bubble: a rank that could compute and has nothing to. Further chunks of a rank's model have hues of
their own. Other computation is grey with its name; below it are a lane of what is sent, one of what
is received, and an arrow from each send to its receive. A rank that sends is not idle, so in a run
with messages and without a schedule nothing is called idle.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from course_lib.observe.timeline import COMPUTE, Span, Timeline
from course_lib.techniques.schedules import Op

from .charts import Field, round_numbers, whole_numbers
from .palette import (
    COLLECTIVE,
    IDLE,
    QUIET,
    RECEIVE,
    RECEIVE_FAR,
    SEND,
    SEND_FAR,
    Fill,
    operation,
)
from .source_lines import SourceLines, source_line
from .svg_drawing import SMALL, WIDTH, Picture, width
from .units import size_text, time_text
from .view import View

NAMES = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
_LANES = {"send": SEND, "receive": RECEIVE}  # any other track is a collective
_BETWEEN = {"send": SEND_FAR, "receive": RECEIVE_FAR}
_LEFT, _HELD, _RIGHT = 64, 76, 14  # pixels left of the time, for what is held, right of it
_ALL, _ROWS = 224, (26, 38)  # pixels that the ranks' computation shares, and one's least and most
_LANE, _LANES_ALONE = 6, (8, 14)  # pixels of a lane of messages; least and most without computation
_GAP = 6  # pixels between rows of messages alone
_BUBBLE = "idle (bubble)"
_SIZES = (11.0, 10.0, 9.0, 8.0)  # pixels of the numbers in boxes, the largest that fits them all
_MOST_ARROWS = 600


def gantt_chart(
    timelines: Timeline | Mapping[str, Timeline],
    title: str = "",
    unit: Literal["", "s"] = "",
    scale: Literal["shared", "each"] = "shared",
    node: int | None = None,
) -> View:
    """One timeline, or several by name, with bubble and peak of microbatches in flight.

    unit   "s" where times are seconds, as of recordings and replays; else units of the given costs
    scale  "each": every timeline has the whole width, to compare a measured run with a simulated
           one, whose times are in other units
    node   ranks of a node: what is sent from one node to another has colours of its own
    """
    named = {title: timelines} if isinstance(timelines, Timeline) else dict(timelines)
    if not named:
        raise ValueError("there is no timeline to show")
    if unit not in ("", "s") or scale not in ("shared", "each"):
        raise ValueError(f"unit = {unit!r} must be '' or 's', scale = {scale!r} shared or each")
    text = "\n\n".join(_text(name, timeline, unit) for name, timeline in named.items())
    return View(_draw(named, unit, scale, node), text)


def summary(timeline: Timeline, unit: str = "") -> str:
    """The numbers of a timeline in one line."""
    length = length_text(timeline.makespan, unit)
    if not any(timeline.busy):
        return f"{length}, messages only"
    if not _idles(timeline):
        return f"{length}, ranks compute {1 - timeline.bubble_fraction:.1%} of the time"
    idle = f"{length}, ranks idle {timeline.bubble_fraction:.1%} of the time"
    most = max(held_by_rank(timeline), default=0)
    if not most:
        return idle
    if (
        len(timeline.peak_in_flight) > timeline.world_size
    ):  # a microbatch of one of a rank's stages counts as a part of one
        return f"{idle}, at most {_short(most)} microbatches' worth in flight"
    return f"{idle}, at most {_short(most)} microbatch{'es' if most != 1 else ''} in flight"


def held_by_rank(timeline: Timeline) -> tuple[float, ...]:
    """The most that each rank holds for backward passes to come; () if there is no schedule.

    In microbatches of all of a rank's layers: of each of its v stages one counts 1/v.
    """
    if not (stages := len(timeline.peak_in_flight)):
        return ()
    share = timeline.world_size / stages
    return timeline.peak_held_by_rank(activation=share, weight=share)


# ------------------------------------------------------------------------------------------------


def length_text(time: float, unit: str = "") -> str:
    """A time of a timeline in words; unit: as in `gantt_chart`."""
    if unit == "s":
        return time_text(time)
    return f"{_length(time)} time unit{'s' if time != 1 else ''}"


def _idles(timeline: Timeline) -> bool:
    """Whether a rank that does not compute is idle: else it may be sending."""
    alone = all(track.name == COMPUTE for track in timeline.tracks)
    return any(timeline.busy) and (alone or bool(timeline.peak_in_flight))


def _length(time: float) -> str:
    return _short(time) if time < 10 else f"{time:.1f}".removesuffix(".0")


def _short(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _text(name: str, timeline: Timeline, unit: str) -> str:
    numbers = summary(timeline, unit)
    head = [f"{name}: {numbers}" if name else numbers]
    if not any(timeline.busy):
        return head[0]
    whole = all(float(end).is_integer() for track in timeline.tracks for end in track.ends)
    # Measured times have no unit in which they are legible: the order of each rank has to do.
    body = timeline.text() if whole else _orders(timeline)
    held = timeline.peak_in_flight
    stages = "stage 0" if len(held) == 1 else f"stages 0 to {len(held) - 1}"
    foot = [f"in flight at most, {stages}: {' '.join(map(str, held))}"] if held else []
    return "\n".join([*head, body, *foot])


def _orders(timeline: Timeline) -> str:
    rows: dict[int, list[str]] = {rank: [] for rank in range(timeline.world_size)}
    around = _around(timeline)
    for track in timeline.tracks:
        if track.name == COMPUTE:
            names = ("computes" if what in around else str(what) for what in track.what)
            runs = itertools.groupby(names)
            counts = ((name, sum(1 for _ in same)) for name, same in runs)
            rows[track.rank] += [f"{name} x{n}" if n > 1 else name for name, n in counts]
    return "\n".join(f"rank {rank} | {' '.join(names)}" for rank, names in rows.items())


def _around(timeline: Timeline) -> set[str]:
    """Labels that were put around messages too: they name no computation."""
    return {label for span in timeline.spans if span.event for label in span.event.spans} | {
        COMPUTE
    }


@dataclass(frozen=True)
class _Panel:
    """A timeline in its place: `pixels` for a unit of its time, rows from `top` on."""

    timeline: Timeline
    unit: str
    top: float
    pixels: float
    rows: Sequence[range]  # ranks that do the same at the same times share one
    node: int | None = None

    @property
    def lanes(self) -> list[str]:
        """Names of the lanes below each rank's computation."""
        names = {track.name for track in self.timeline.tracks} - {COMPUTE}
        both = [lane for lane in _LANES if lane in names]
        return both or (["together"] if names else [])

    @property
    def computes(self) -> bool:
        """Whether there is anything but messages."""
        return any(self.timeline.busy) or not self.lanes

    @property
    def tall(self) -> float:
        """Pixels of computation in a row: few ranks have larger ones."""
        least, most = _ROWS
        if not self.computes:
            return 0
        return least if self.lanes else min(most, max(least, _ALL // len(self.rows)))

    @property
    def wire(self) -> float:
        """Pixels of a lane of messages, which are larger where there is nothing else."""
        if self.computes:
            return _LANE
        least, most = _LANES_ALONE
        return min(most, max(least, _ALL // (len(self.rows) * len(self.lanes)) - _GAP))

    @property
    def row(self) -> float:
        under = self.wire * len(self.lanes)
        return self.tall + under + ((3 if self.computes else _GAP) if self.lanes else 0)

    @property
    def bottom(self) -> float:
        return self.top + self.row * len(self.rows)

    def y(self, rank: int) -> float:
        """Where the row of a rank begins."""
        return self.top + self.row * next(k for k, row in enumerate(self.rows) if rank in row)

    def label(self, rank: int) -> float:
        """The height of the rank's name: beside what it computes, or in the middle of its row."""
        return self.y(rank) + (self.tall if self.computes else self.row) / 2

    def x(self, time: float) -> float:
        return _LEFT + time * self.pixels

    def lane(self, span: Span) -> tuple[float, float]:
        """Top and height of what went over the wires; a collective takes all lanes."""
        y = self.y(span.rank) + (self.tall - 1 if self.computes else _GAP / 2)
        if span.track in self.lanes:
            return y + self.wire * self.lanes.index(span.track), self.wire - 1
        return y, self.wire * len(self.lanes) - 1


def _alike(timeline: Timeline) -> list[range]:
    """Ranks beside one another that do the same at the same times."""
    does: dict[int, list[Any]] = {rank: [] for rank in range(timeline.world_size)}
    for track in timeline.tracks:
        does[track.rank].append((track.name, track.starts, track.ends, track.what))
    rows: list[range] = []
    for rank, doing in does.items():
        if rows and doing and does[rows[-1].start] == doing:
            rows[-1] = range(rows[-1].start, rank + 1)
        else:
            rows.append(range(rank, rank + 1))
    return rows


def _draw(named: Mapping[str, Timeline], unit: str, scale: str, node: int | None) -> Picture:
    longest = max(timeline.makespan for timeline in named.values()) or 1
    holds = any(timeline.peak_in_flight for timeline in named.values())
    right = WIDTH - _RIGHT - (_HELD if holds else 0)
    heads = [
        f"{name}: {summary(timeline, unit)}" if name else summary(timeline, unit)
        for name, timeline in named.items()
    ]
    picture = Picture("" if len(named) > 1 else heads[0])
    top = picture.height
    several = any(max(_chunks(timeline).values(), default=0) for timeline in named.values())
    seen: dict[str, Fill] = {}
    sources = SourceLines(picture)
    for head, timeline in zip(heads, named.values(), strict=True):
        if len(named) > 1:
            picture.text(4, picture.height + 12, head, bold=True)
            picture.height += 24
        span = timeline.makespan if scale == "each" else longest
        pixels = (right - _LEFT) / (span or 1)
        panel = _Panel(timeline, unit, picture.height, pixels, _alike(timeline), node)
        _rows(picture, panel, right)
        seen |= _boxes(picture, panel, sources, several)
        picture.height = panel.bottom + 8
    picture.title = "; ".join(heads)
    field = Field(picture, _LEFT, top, right - _LEFT, picture.height - top, (0, longest), (0, 1))
    if scale == "each" and len(named) > 1:
        quarters = {longest * k / 4: f"{25 * k}%" for k in range(5)}
        field.marks_below(quarters, "time, of each run's own length")
        end = "100 %"
    else:
        text = time_text if unit == "s" else _short
        marks = round_numbers(0, longest, 8, text)
        if unit != "s" and longest >= 8:
            marks = whole_numbers(0, longest, 8)
        numbers = "; a number in a box is a microbatch" if holds else ""
        field.marks_below(marks, f"time{'' if unit == 's' else ' units'}{numbers}")
        end = time_text(longest) if unit == "s" else f"{_length(longest)} units"
    picture.player(_LEFT, right, top, field.bottom, end)
    together = ", ".join(name for name in sorted(seen) if seen[name] == COLLECTIVE)
    key = {together if fill == COLLECTIVE else name: fill for name, fill in seen.items()}
    picture.key({name: key[name] for name in sorted(key, key=_place)})
    return picture


def _rows(picture: Picture, panel: _Panel, right: float) -> None:
    """Names of the ranks on the left, what they hold at most on the right."""
    held = held_by_rank(panel.timeline)
    end = panel.x(panel.timeline.makespan)
    for ranks in panel.rows:
        y = panel.y(ranks.start)
        picture.text(_LEFT - 8, panel.label(ranks.start), _named(ranks), SMALL, "end")
        if not _idles(panel.timeline):  # else what is idle makes the row
            picture.line([(_LEFT, y + panel.row), (end, y + panel.row)], "line", 0.8)
        if held:
            words = f"holds {held[ranks.start]:.3g}"
            picture.text(right + 8, y + panel.tall / 2, words, SMALL, ink="soft")
    picture.line([(end, panel.top), (end, panel.bottom)], "soft", key="end")


def _named(ranks: range) -> str:
    """ "rank 3", "ranks 0-7"."""
    return f"ranks {ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else f"rank {ranks[0]}"


def _boxes(picture: Picture, panel: _Panel, sources: SourceLines, several: bool) -> dict[str, Fill]:
    """Draw what was done; returns what the colours mean. several: chunks on a rank, somewhere."""
    timeline = panel.timeline
    chunks = _chunks(timeline)
    around = _around(timeline)
    size = _number_size(panel)
    shown = {ranks.start: ranks for ranks in panel.rows}
    seen: dict[str, Fill] = {}
    _arrows(picture, panel)  # below the boxes, which have words
    if _idles(timeline):
        name = _BUBBLE if timeline.peak_in_flight else "idle"
        seen |= {name: IDLE} if _gaps(picture, panel, name) else {}
    for span in timeline.spans:
        if span.rank not in shown:
            continue
        x, wide = panel.x(span.start), (span.end - span.start) * panel.pixels
        y = panel.y(span.rank)
        hint = _hint(span, shown[span.rank], panel.unit)
        if span.track != COMPUTE:
            name, fill = _sent_over(span, panel.node)
            low, high = panel.lane(span)
            line = sources.place(span.event.where) if span.event else ""
            gap = 1 if wide > 3 else 0
            picture.box(x, low, max(wide - gap, 1.5), high, fill, hint, key=name, line=line)
            seen.setdefault(name, fill)
            continue
        fill, name, word = QUIET, "computation", ""
        if isinstance(span.what, tuple):
            number = chunks[span.what[1]]
            name = NAMES[span.what[0]] + (f", chunk {number}" if several else "")
            fill = operation(span.what[0], number)
            word = str(span.what[2])
        elif span.what not in around:
            word = span.what
        fits = width(word, SMALL) < wide - 4
        if isinstance(span.what, tuple):
            fits = size > 0 and wide > 1  # what takes no time has no room for its number
        gap = 1 if wide > 4 else 0
        picture.box(
            x, y + 2, max(wide - gap, 0.7), panel.tall - 5, fill, hint, word if fits else "",
            size if isinstance(span.what, tuple) else SMALL, key=name, later="" if fits else word,
        )  # fmt: skip
        seen.setdefault(name, fill)
    return seen


def _gaps(picture: Picture, panel: _Panel, name: str) -> int:
    """Draw when ranks could compute and do not, up to the end of the run; returns how often."""
    text = time_text if panel.unit == "s" else _short
    found = 0
    for ranks in panel.rows:
        own = sorted(
            times
            for track in panel.timeline.tracks
            if (track.rank, track.name) == (ranks.start, COMPUTE)
            for times in zip(track.starts, track.ends, strict=True)
        )
        ends = [0.0, *itertools.accumulate((end for _, end in own), max)]
        starts = [*(start for start, _ in own), panel.timeline.makespan]
        for since, until in zip(ends, starts, strict=True):
            wide = (until - since) * panel.pixels
            if wide < 1.5:
                continue
            hint = f"{_named(ranks)}: {name}\n{text(since)} to {text(until)}"
            y, high = panel.y(ranks.start) + 2, panel.tall - 5
            picture.box(panel.x(since), y, wide - 1, high, IDLE, hint, key=name)
            found += 1
    return found


def _place(name: str) -> tuple[int, str]:
    order = [*NAMES.values(), "computation", "sent", "received", _BUBBLE, "idle"]
    first = name.split(",")[0]
    return (order.index(first) if first in order else len(order), name)


def _chunks(timeline: Timeline) -> dict[int, int]:
    """The number of each stage among those of its rank, which are the chunks of the model there."""
    on: dict[int, set[int]] = {}
    for track in timeline.tracks:
        for what in track.what:
            if isinstance(what, Op):
                on.setdefault(track.rank, set()).add(what.stage)
    return {stage: k for stages in on.values() for k, stage in enumerate(sorted(stages))}


def _number_size(panel: _Panel) -> float:
    """Pixels of the numbers of microbatches: one size that fits every box, or 0 if none does."""
    needed = [
        width(str(span.what[2]), 1) / max((span.end - span.start) * panel.pixels - 1, 1e-9)
        for span in panel.timeline.spans
        if isinstance(span.what, tuple) and span.end > span.start
    ]
    return next((size for size in _SIZES if size * max(needed, default=0) <= 1), 0.0)


def _sent_over(span: Span, node: int | None) -> tuple[str, Fill]:
    """What it is called that went over a wire, and its colour."""
    if span.track not in _LANES:
        return str(span.what), COLLECTIVE
    name = {"send": "sent", "receive": "received"}[span.track]
    if node is not None and span.rank // node != _peer(span) // node:
        return f"{name}, between nodes", _BETWEEN[span.track]
    return name, _LANES[span.track]


def _hint(span: Span, ranks: range, unit: str) -> str:
    """What the pointer tells: operation, rank, bytes, time and the learner's line."""
    text = time_text if unit == "s" else _short
    what = str(span.what)
    if isinstance(span.what, tuple):
        kind, stage, microbatch = span.what
        what = f"{NAMES[kind]} of microbatch {microbatch} on stage {stage}"
    lines = [f"{_named(ranks)}: {what}"]
    if span.event is not None:
        if span.event.nbytes:
            lines[0] += f", {size_text(span.event.nbytes)}"
        if span.event.where:
            frame = span.event.where[0]
            lines.append(
                f"line {frame.line} of {frame.function}: {source_line(frame)}".rstrip(": ")
            )
    lines.append(f"{text(span.start)} to {text(span.end)}")
    return "\n".join(lines)


def _arrows(picture: Picture, panel: _Panel) -> None:
    """From each send to its receive: the k-th of a pair of ranks belong together."""
    waiting: dict[tuple[int, int], list[Span]] = {}
    arrived: list[tuple[Span, int]] = []
    for span in panel.timeline.spans:
        if span.track == "send":
            waiting.setdefault((span.rank, _peer(span)), []).append(span)
        elif span.track == "receive":
            arrived.append((span, _peer(span)))
    if len(arrived) > _MOST_ARROWS:
        return
    for span, source in arrived:
        if queue := waiting.get((source, span.rank)):
            sent = queue.pop(0)
            (y, high), (to, _) = panel.lane(sent), panel.lane(span)
            picture.message(
                (panel.x(sent.start), y + high / 2), (panel.x(span.end), to + high / 2),
                SEND.color, f"from rank {source} to rank {span.rank}",
            )  # fmt: skip


def _peer(span: Span) -> int:
    """The other end, as its name says: "send to 1", "receive from 0"."""
    return int(str(span.what).rsplit(" ", 1)[-1])
