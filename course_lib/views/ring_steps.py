"""The ring all-reduce step by step: which chunk is where, and whose values are already in it.

Rank r starts with the value 10**r in every chunk, so a partial sum shows its parts: 1100 holds
what ranks 2 and 3 put in, and 1111 is complete.

    reduce-scatter, step s: rank r sends chunk r-1-s to rank r+1, which adds it to its own
    all-gather,     step s: rank r sends chunk r-s   to rank r+1, which keeps it in place of its own

all modulo n. After the first half rank r holds the complete chunk r, as `dist.reduce_scatter`
has it (Patarasuk & Yuan, JPDC 69(2), 2009).
"""

from dataclasses import dataclass

import numpy as np
from matplotlib import colormaps
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from .lettering import letter
from .palette import ALARM, INK, PAPER
from .view import View

LARGEST = 5  # ranks; more do not fit a page, and teach nothing more


@dataclass(frozen=True)
class RingStep:
    """The chunks after one step."""

    name: str  # "start", "reduce-scatter 1", ..., "all-gather 3"
    received: tuple[int | None, ...]  # [rank]: the chunk that has just arrived
    sums: tuple[tuple[int, ...], ...]  # [rank][chunk]


def play_ring(n: int) -> list[RingStep]:
    """The start and the 2(n-1) steps of the ring on n ranks, on the values 10**rank."""
    sums = [[10**rank] * n for rank in range(n)]
    steps = [_freeze("start", [None] * n, sums)]
    for s in range(n - 1):
        received = [(rank - 2 - s) % n for rank in range(n)]
        moving = [sums[rank - 1][received[rank]] for rank in range(n)]
        for rank, chunk in enumerate(received):
            sums[rank][chunk] += moving[rank]
        steps.append(_freeze(f"reduce-scatter {s + 1}", received, sums))
    for s in range(n - 1):
        received = [(rank - 1 - s) % n for rank in range(n)]
        moving = [sums[rank - 1][received[rank]] for rank in range(n)]
        for rank, chunk in enumerate(received):
            sums[rank][chunk] = moving[rank]
        steps.append(_freeze(f"all-gather {s + 1}", received, sums))
    return steps


def _freeze(name: str, received: list, sums: list[list[int]]) -> RingStep:
    return RingStep(name, tuple(received), tuple(map(tuple, sums)))


def ring_steps(ranks: int = 4) -> View:
    """All steps of the ring, side by side."""
    if not 1 <= ranks <= LARGEST:
        raise ValueError(f"the picture holds 1 to {LARGEST} ranks, not {ranks}")
    steps = play_ring(ranks)
    return View(_draw(steps, ranks), _text(steps, ranks))


# ------------------------------------------------------------------------------------------------


def _text(steps: list[RingStep], n: int) -> str:
    lines = [
        f"Ring of {n} ranks. Rank r starts with 10^r in every chunk; * has just arrived.",
        " " * 18 + " | ".join(f"{f'rank {rank}':<{n * (n + 2) - 1}}" for rank in range(n)).rstrip(),
    ]
    for step in steps:
        cells = []
        for rank in range(n):
            row = (
                f"{'*' if chunk == step.received[rank] else ''}{value}"
                for chunk, value in enumerate(step.sums[rank])
            )
            cells.append(" ".join(f"{text:>{n + 1}}" for text in row))
        lines.append(f"{step.name:<18}" + " | ".join(cells))
    return "\n".join(lines)


def _draw(steps: list[RingStep], n: int) -> Figure:
    """One table a step, at most four in a row; a single Axes draws far faster than one a panel."""
    columns = min(4, len(steps))
    rows = -(-len(steps) // columns)
    width, height = n + 0.8, n + 1.1  # of a panel with its title, in cells
    figure = Figure(figsize=(0.5 * width * columns + 0.8, 0.36 * height * rows + 0.3))
    ax = figure.add_axes((0.07, 0.0, 0.92, 1.0))
    ax.set(xlim=(0, width * columns), ylim=(height * rows, -0.6))
    ax.axis("off")
    ax.text(
        0,
        -0.25,
        "one row a rank, one column a chunk; outlined: has just arrived; dark: complete",
        fontsize=8,
    )
    boxes, shades, outlined, words, names, ranks = [], [], [], [], [], []
    for index, step in enumerate(steps):
        left, top = index % columns * width, index // columns * height + 0.8
        names.append((left, top - 0.33, step.name, INK))
        for rank in range(n):
            if index % columns == 0:
                ranks.append((left - 0.2, top + rank + 0.5, f"rank {rank}", INK))
            for chunk, value in enumerate(step.sums[rank]):
                parts = str(value).count("1")
                boxes.append(_square(left + chunk, top + rank))
                shades.append(1.0 if parts == n else 0.6 * parts / n)
                ink = PAPER if parts == n else INK
                words.append((left + chunk + 0.5, top + rank + 0.5, str(value), ink))
            if step.received[rank] is not None:
                outlined.append(_square(left + step.received[rank], top + rank, margin=0.06))
    letter(ax, words, size=8)
    letter(ax, names, size=9, align="left", bold=True)
    letter(ax, ranks, size=8, align="right")
    colors = colormaps["Blues"](shades)
    ax.add_collection(
        PolyCollection(np.array(boxes), facecolors=colors, edgecolors="white", zorder=0)
    )
    ax.add_collection(PolyCollection(outlined, facecolors="none", edgecolors=ALARM, linewidths=2))
    return figure


def _square(left: float, top: float, margin: float = 0.0) -> list[tuple[float, float]]:
    """Corners of a cell; far cheaper to draw by the hundred than patches are."""
    near, far = margin, 1 - margin
    return [(left + x, top + y) for x, y in ((near, near), (far, near), (far, far), (near, far))]
