"""When each rank did what: the one form in which schedules and replays give their results.

A timeline is made of tracks. Each rank has a track named "compute"; the time in which it runs
nothing there is idle. Further tracks show what went on beside it, such as messages.
"""

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from course_lib.techniques.schedules import parse_op

COMPUTE = "compute"
COMMUNICATION = "communication"


class Span(NamedTuple):
    """One thing that one rank did. `what` is the schedule's `Op` or a plain name.

    event: the operation that was recorded (`CommEvent`), if it was one.
    """

    rank: int
    start: float
    end: float
    what: Any
    track: str = COMPUTE
    event: Any = None


@functools.lru_cache(maxsize=4096)
def read_label(label: str) -> Any:
    """The pipeline operation that a label such as `F0.3` names, or just the label."""
    try:
        return parse_op(label)
    except ValueError:
        return label


class Track(NamedTuple):
    """What one lane of one rank did, in order: columns of the same length.

    events: what was recorded of each, or nothing at all.
    """

    rank: int
    name: str
    starts: Sequence[float]
    ends: Sequence[float]
    what: Sequence[Any]
    events: Sequence[Any] = ()


class Timeline:
    """Spans of all ranks from time 0, and what follows from them."""

    def __init__(self, world_size: int, tracks: Sequence[Track]) -> None:
        for track in tracks:
            if not 0 <= track.rank < world_size:
                raise ValueError(f"a track of rank {track.rank} in a world of {world_size} ranks")
        self.world_size = world_size
        self.tracks = tuple(tracks)

    def __repr__(self) -> str:
        return (
            f"Timeline({self.world_size} ranks, makespan {self.makespan:g}, "
            f"bubble {self.bubble_fraction:.1%})"
        )

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """Every span, track by track, each in order of time."""
        return tuple(
            Span(track.rank, start, end, what, track.name, event)
            for track in self.tracks
            for start, end, what, event in zip(
                track.starts,
                track.ends,
                track.what,
                track.events or itertools.repeat(None, len(track.what)),
                strict=True,
            )
        )

    # --------------------------------------------------------------------------------------------
    # Time
    # --------------------------------------------------------------------------------------------

    @cached_property
    def makespan(self) -> float:
        """The end of the last span."""
        return max((max(track.ends) for track in self.tracks if track.ends), default=0)

    @cached_property
    def busy(self) -> tuple[float, ...]:
        """Time that each rank computes."""
        return tuple(
            sum(sum(t.ends) - sum(t.starts) for t in self._compute(rank))
            for rank in range(self.world_size)
        )

    @property
    def idle(self) -> tuple[float, ...]:
        """Time that each rank does not compute, until the last rank is done."""
        return tuple(self.makespan - busy for busy in self.busy)

    @property
    def bubble_fraction(self) -> float:
        """Idle share of all the ranks' time: (p-1)/(m+p-1) for GPipe and 1F1B of equal stages.

        The convention of GPipe (section 2.3) and of Zero Bubble's "bubble rate" (section 5).
        """
        total = self.world_size * self.makespan
        return sum(self.idle) / total if total else 0.0

    @property
    def bubble_over_ideal(self) -> float:
        """Idle time over working time: (p-1)/m for GPipe and 1F1B of equal stages.

        The convention of Megatron-LM (Narayanan et al., SC 2021, section 2.2.1).
        """
        return sum(self.idle) / sum(self.busy) if any(self.busy) else 0.0

    # --------------------------------------------------------------------------------------------
    # Memory
    # --------------------------------------------------------------------------------------------

    @property
    def peak_in_flight(self) -> tuple[int, ...]:
        """By stage: the most microbatches between F and the end of their backward, B or W.

        W still needs what forward computed, so a split backward lets go of it only there.
        """
        return tuple(int(held) for held in self.peak_held(activation=1, weight=1))

    def peak_held(self, activation: float = 1, weight: float = 0) -> tuple[float, ...]:
        """By stage: the most that is held for backward passes to come.

        A microbatch holds `activation` from its forward on, and `weight` of it from I to W, where
        the backward is split. In bytes: M_B and M_W of Zero Bubble (Qi et al. 2024, section 2.3).
        """
        peaks: dict[int, float] = {}
        for rank in range(self.world_size):
            for stage, held in self._holdings(rank, activation, weight):
                peaks[stage] = max(peaks.get(stage, 0), held[stage])
        return tuple(peaks[stage] for stage in sorted(peaks))

    def peak_held_by_rank(self, activation: float = 1, weight: float = 0) -> tuple[float, ...]:
        """By rank, over all the stages it holds: what interleaving costs in memory."""
        return tuple(
            max(
                (sum(held.values()) for _, held in self._holdings(rank, activation, weight)),
                default=0,
            )
            for rank in range(self.world_size)
        )

    def _holdings(
        self, rank: int, activation: float, weight: float
    ) -> Iterator[tuple[int, dict[int, float]]]:
        """After each operation of a rank: its stage, and what every stage of the rank holds."""
        change = {"F": activation, "B": -activation, "I": weight - activation, "W": -weight}
        held: dict[int, float] = {}
        last = None
        for track in self._compute(rank):
            for what in track.what:
                # An Op; other computation holds nothing, nor does an Op that goes on.
                if isinstance(what, tuple) and what != last:
                    last = what
                    kind, stage, _ = what
                    held[stage] = held.get(stage, 0) + change[kind]
                    yield stage, held

    # --------------------------------------------------------------------------------------------
    # Text
    # --------------------------------------------------------------------------------------------

    def text(self, unit: float | None = None) -> str:
        """The compute tracks as a grid, one column per `unit` of time.

        A cell shows what runs in the middle of its unit: its name where it begins, `--` where it
        goes on, `.` for idle. Left out, `unit` is the longest that fits all spans exactly, where
        times are whole numbers, else the shortest span, in at most 100 columns.
        """
        if unit is None:
            unit = self._unit()
        if unit <= 0:
            raise ValueError(f"unit = {unit}: a column must stand for more than no time")
        columns = math.ceil(self.makespan / unit - 1e-9)
        ranks = range(self.world_size)
        ops = [(r, op) for r in ranks for t in self._compute(r) for op in t.what]
        short = all(isinstance(op, tuple) and op[1] == r for r, op in ops)  # the row says the stage
        rows = [self._cells(rank, unit, columns, short) for rank in ranks]
        width = max((len(cell) for row in rows for cell in row), default=1)
        digits = len(str(self.world_size - 1))
        lines = [" ".join(cell.ljust(width) for cell in row) for row in rows]
        return "\n".join(f"rank {r:>{digits}} | {line}".rstrip() for r, line in enumerate(lines))

    def _cells(self, rank: int, unit: float, columns: int, short: bool) -> list[str]:
        cells = ["."] * columns
        for track in self._compute(rank):
            for start, end, what in zip(track.starts, track.ends, track.what, strict=True):
                first, last = (math.ceil(time / unit - 0.5 - 1e-9) for time in (start, end))
                name = f"{what[0]}{what[2]}" if short else str(what)
                for column in range(first, last):
                    cells[column] = name if column == first else "--"
        return cells

    def _unit(self) -> float:
        spans = [span for span in self.spans if span.track == COMPUTE and span.end > span.start]
        times = [time for span in spans for time in (span.start, span.end)]
        if all(float(time).is_integer() for time in times):
            return math.gcd(*map(int, times)) or 1
        return max(min(span.end - span.start for span in spans), self.makespan / 100)

    def _compute(self, rank: int) -> Iterator[Track]:
        return (t for t in self.tracks if t.rank == rank and t.name == COMPUTE)
