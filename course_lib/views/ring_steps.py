"""The ring all-reduce step by step: which chunk is where, and whose values are already in it.

Rank r starts with the value 10**r in every chunk, so a partial sum shows its parts: 1100 holds
what ranks 2 and 3 put in, and 1111 is complete.

    reduce-scatter, step s: rank r sends chunk r-1-s to rank r+1, which adds it to its own
    all-gather,     step s: rank r sends chunk r-s   to rank r+1, which keeps it instead of its own

all modulo n. After the first half rank r holds the complete chunk r, as `dist.reduce_scatter`
has it (Patarasuk & Yuan, JPDC 69(2), 2009).
"""

import math
from dataclasses import dataclass

from .palette import Fill, shade
from .svg_drawing import SMALL, WIDTH, Picture, Point
from .view import View

_SIDE = 46  # pixels from an arrow to its words
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
    """All steps of the ring, side by side; in a live page one after the other."""
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


def _draw(steps: list[RingStep], n: int) -> Picture:
    """All steps as tables; where scripts run, one ring that goes from step to step."""
    picture = Picture(f"ring all-reduce on {n} rank{'s' if n > 1 else ''}, step by step")
    top = picture.height
    with picture.group("still"):
        _tables(picture, steps, n)
    below, picture.height = picture.height, top
    for step in steps:
        picture.height = top
        with picture.group("frame", step.name):
            _ring(picture, step, n)
    picture.height = max(below, picture.height)
    return picture


def _tables(picture: Picture, steps: list[RingStep], n: int) -> None:
    """One table a step, at most four in a row."""
    words = "one row per rank, one column per chunk; outlined: has just arrived; strong: complete"
    picture.text(4, picture.height + 6, words, SMALL, ink="soft")
    columns = min(4, len(steps))
    wide, high = min(46.0, ((WIDTH - 60) / columns - 18) / n), 24
    top = picture.height + 18
    for index, step in enumerate(steps):
        left = 60 + index % columns * (n * wide + 18)
        y = top + index // columns * (n * high + 34)
        picture.text(left, y + 12, step.name, bold=True)
        for rank in range(n):
            if index % columns == 0:
                picture.text(52, y + 24 + (rank + 0.5) * high, f"rank {rank}", SMALL, "end")
            _row(picture, step, rank, left, y + 24, wide, high)
        picture.height = y + 24 + n * high + 8


def _row(
    picture: Picture, step: RingStep, rank: int, left: float, top: float, wide: float, high: float
) -> None:
    """The chunks of a rank beside one another; `rank` rows below `top`."""
    n, y = len(step.sums), top + rank * high
    for chunk, value in enumerate(step.sums[rank]):
        x, parts = left + chunk * wide, str(value).count("1")
        hint = f"{step.name}: rank {rank}, chunk {chunk} holds {value}"
        picture.box(x, y, wide - 1, high - 1, _shade(parts == n, parts), hint, str(value))
    arrived = step.received[rank]
    if arrived is not None:
        x = left + arrived * wide
        corners = [(x, y), (x + wide - 1, y), (x + wide - 1, y + high - 1), (x, y + high - 1)]
        picture.line([*corners, corners[0]], "alarm", 2)


def _ring(picture: Picture, step: RingStep, n: int) -> None:
    """The ranks in a circle, what each has sent to the next, and what each holds after that."""
    top, radius = picture.height, 118.0
    x0, y0 = WIDTH / 2, top + 44 + radius
    wide = min(46.0, 200 / n)
    middles = []
    for rank in range(n):
        turn = 2 * math.pi * rank / n - math.pi / 2
        middles.append((x0 + 2.2 * radius * math.cos(turn), y0 + radius * math.sin(turn)))
    for rank, (x, y) in enumerate(middles):
        to = (rank + 1) % n
        if step.received[to] is not None:
            start, end = _between(middles[rank], middles[to])
            picture.arrow(start, end, "alarm", 2, f"rank {rank} to rank {to}")
            words = f"chunk {step.received[to]}"
            a, b = (start[0] + end[0]) / 2, (start[1] + end[1]) / 2
            side = _SIDE if a > x0 + 1 else -_SIDE if a < x0 - 1 else 0.0
            picture.text(a + side, b - (0 if side else 12), words, SMALL, "middle", ink="alarm")
        picture.text(x, y - 22, f"rank {rank}", anchor="middle", bold=True)
        _row(picture, step, rank, x - n * wide / 2, y - 12 - rank * 24, wide, 24)
    picture.height = y0 + radius + 24
    what = "adds what arrives to its own" if "scatter" in step.name else "keeps what arrives"
    words = f"each rank {what}" if step.name != "start" else "rank r has 10^r in every chunk"
    picture.text(x0, y0 - 9, step.name, anchor="middle", bold=True)
    picture.text(x0, y0 + 9, words, SMALL, "middle", ink="soft")


def _between(one: Point, other: Point) -> tuple[Point, Point]:
    """The middle half of the way from one to the other."""
    (a, b), (c, d) = one, other
    return (a + 0.3 * (c - a), b + 0.3 * (d - b)), (a + 0.7 * (c - a), b + 0.7 * (d - b))


def _shade(complete: bool, parts: int) -> Fill:
    """Far from that of a complete sum, however many parts are in it."""
    return shade(1.0 if complete else 0.06 + 0.4 * max(0, parts - 1) / LARGEST)
