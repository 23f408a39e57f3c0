"""What the ranks kept in memory, and when: a pure function of what was recorded."""

from collections.abc import Iterable
from dataclasses import dataclass

from course_lib.text import table

from .events import Block
from .memory_tracker import KINDS

_STATES = ("parameters", "gradients", "optimizer")


@dataclass(frozen=True, slots=True)
class MemoryCurve:
    """Bytes of one rank over time: `nbytes[kind][k]` from `times[k]` (seconds) to the next."""

    times: list[float]
    nbytes: dict[str, list[int]]

    @property
    def total(self) -> list[int]:
        """All kinds together."""
        return [sum(row) for row in zip(*self.nbytes.values(), strict=True)]


class Memory:
    """Bytes in unique storages, by what they are for; see `course_lib.observe.memory_tracker`.

    kinds: "parameters", "gradients", "optimizer", "activations", "communication" and "other".
    peak[r]: the most bytes that rank r held at one time.
    at_peak[r]: {kind: bytes} at that time, whose sum is the peak.
    highest[r]: {kind: bytes}, the most of each kind, whenever that was. For parameters, gradients
        and optimizer these are the model's states.
    curves[r]: all of it over time (`MemoryCurve`).
    """

    kinds = KINDS

    def __init__(self, world_size: int, blocks: Iterable[Block]):
        blocks = list(blocks)
        self.world_size = world_size
        self.curves = [_curve([b for b in blocks if b.rank == r]) for r in range(world_size)]
        self.highest = [
            {kind: max(column, default=0) for kind, column in curve.nbytes.items()}
            for curve in self.curves
        ]
        self.at_peak, self.peak = [], []
        for curve in self.curves:
            total = curve.total
            top = max(range(len(total)), key=total.__getitem__, default=None)
            self.at_peak.append({k: 0 if top is None else curve.nbytes[k][top] for k in KINDS})
            self.peak.append(sum(self.at_peak[-1].values()))

    def __str__(self) -> str:
        rows = [["bytes, by rank", *(f"rank {rank}" for rank in range(self.world_size))]]
        rows.append(["peak", *(f"{peak:,}" for peak in self.peak)])
        rows += [[f"  {k}", *(f"{at[k]:,}" for at in self.at_peak)] for k in KINDS]
        return table(rows)

    __repr__ = __str__


def _curve(blocks: list[Block]) -> MemoryCurve:
    changes: list[tuple[float, str, int]] = []  # time, kind, bytes more or less
    for block in blocks:
        kind, nbytes = block.kind, 0
        for time, now, saved in block.steps:
            changes.append((time, kind, -nbytes))
            kind = "activations" if saved and block.kind not in _STATES else block.kind
            changes.append((time, kind, now))
            nbytes = now
    changes.sort(key=lambda change: change[0])
    held = dict.fromkeys(KINDS, 0)
    curve = MemoryCurve([], {kind: [] for kind in KINDS})
    for index, (time, kind, more) in enumerate(changes):
        held[kind] += more
        if index + 1 == len(changes) or changes[index + 1][0] > time:
            curve.times.append(time)
            for name, column in curve.nbytes.items():
                column.append(held[name])
    return curve
