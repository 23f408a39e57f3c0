"""Ranks that are stuck: who waits for whom, each rank's line, and the circle if there is one."""

import linecache
import math
from collections.abc import Mapping

from course_lib.observe import CommEvent, Frame, Trace
from course_lib.observe.wait_cycle import awaited, wait_cycle
from course_lib.text import listed

from .palette import Fill
from .svg_drawing import SMALL, WIDTH, Picture, Point, width
from .view import View

LARGEST = 12  # ranks whose lines can be read
_WIDE, _NARROW, _HIGH = 290, 216, 60  # pixels of a rank's card: up to _FEW ranks have wide ones
_FEW = 4
_WAITS, _ELSEWHERE = Fill("#8fc9ec"), Fill("#dddddd")


def hang(
    trace: Trace, elsewhere: Mapping[int, str], lines: Mapping[int, Frame] | None = None
) -> View | None:
    """The picture of a run that was ended, or None if nobody waits for anybody in particular.

    elsewhere  what each rank does that waits in no communication; a rank that is neither has
               returned
    lines      where each rank is, if not in the line of what it waits in
    """
    waits = {rank: event for rank in range(trace.world_size) if (event := trace.waiting(rank))}
    edges = {rank: found for rank, event in waits.items() if (found := _for_whom(event, trace))}
    if not edges or trace.world_size > LARGEST:
        return None
    first = {rank: others[0] for rank, others in edges.items()}
    circle = next(filter(None, (wait_cycle(rank, first) for rank in edges)), [])
    doing = {
        rank: _doing(waits[rank]) if rank in waits else elsewhere.get(rank, "has returned")
        for rank in range(trace.world_size)
    }
    frames = {rank: event.where[0] for rank, event in waits.items() if event.where}
    text = "\n".join(
        f"rank {rank} waits for {' and '.join(f'rank {other}' for other in others)}"
        for rank, others in edges.items()
    )
    if circle:
        text += "\nin a circle: " + " -> ".join(map(str, [*circle, circle[0]]))
    return View(_draw(edges, circle, doing, dict(lines or {}) | frames), text)


# ------------------------------------------------------------------------------------------------


def _for_whom(event: CommEvent, trace: Trace) -> list[int]:
    """The other ranks that would have to do something before this operation can end."""
    return [rank for rank in awaited(event, trace) if rank != event.rank]


def _doing(event: CommEvent) -> str:
    if event.op == "send":
        return f"sends to rank {event.peer}"
    if event.op == "recv":
        return f"receives from rank {event.peer}"
    return f"waits in {event.op}"


def _draw(
    edges: Mapping[int, list[int]], circle: list[int], doing: Mapping[int, str],
    frames: Mapping[int, Frame],
) -> Picture:  # fmt: skip
    if circle:
        title = f"who waits for whom: ranks {listed(sorted(circle))} in a circle, so none goes on"
    else:
        pairs = (f"rank {one} for {_ranks(others)}" for one, others in edges.items())
        title = f"who waits for whom: {', '.join(pairs)}"
    picture = Picture(title)
    n = len(doing)
    wide = _WIDE if n <= _FEW else _NARROW
    radius = 0.0 if n <= 2 else max(70.0, 24.0 * n)
    middle = picture.height + 14 + _HIGH / 2 + radius
    points = {
        rank: _on_ellipse(rank, n, WIDTH / 2, middle, WIDTH / 2 - wide / 2 - 12, radius)
        for rank in doing
    }
    follows = dict(zip(circle, [*circle[1:], *circle[:1]], strict=True))
    for rank, others in edges.items():
        for other in others:
            red = follows.get(rank) == other
            # Two that wait for each other have an arrow each, side by side
            aside = 9 if rank in edges.get(other, ()) else 0
            start, end = _between(points[rank], points[other], wide, aside)
            hint = f"rank {rank} waits for rank {other}"
            picture.arrow(start, end, "alarm" if red else "soft", 2.5 if red else 1.5, hint)
    for rank, (x, y) in points.items():
        left, top = x - wide / 2, y - _HIGH / 2
        fill = _WAITS if rank in edges else _ELSEWHERE
        where, source = _line(frames.get(rank))
        hint = "\n".join(filter(None, (f"rank {rank} {doing[rank]}", where, source)))
        picture.box(left, top, wide, _HIGH, fill, hint, key="rank")
        if rank in follows:
            corners = [(left, top), (left + wide, top), (left + wide, top + _HIGH),
                       (left, top + _HIGH), (left, top)]  # fmt: skip
            picture.line(corners, "alarm", 2.5)
        words = (f"rank {rank} {doing[rank]}", where, source)
        for row, (line, bold) in enumerate(zip(words, (True, False, False), strict=True)):
            shown = _cut(line, wide - 14, SMALL)
            picture.text(left + 8, top + 13 + 17 * row, shown, SMALL, bold=bold, ink="#000000")
    picture.height = max(y for _, y in points.values()) + _HIGH / 2 + 12
    return picture


def _ranks(numbers: list[int]) -> str:
    """ "rank 1", "ranks 1 and 2"."""
    return f"rank{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


def _on_ellipse(rank: int, n: int, x: float, y: float, wide: float, high: float) -> Point:
    """Rank 0 on the left of two, else at the top, and the others clockwise."""
    turn = math.pi if n <= 2 else -math.pi / 2
    turn += 2 * math.pi * rank / n
    return x + wide * math.cos(turn), y + high * math.sin(turn)


def _between(one: Point, other: Point, wide: float, aside: float) -> tuple[Point, Point]:
    """From the edge of one card to that of the other, `aside` pixels to the right of the way."""
    (a, b), (c, d) = one, other
    long = math.hypot(c - a, d - b) or 1.0
    dx, dy = (c - a) / long, (d - b) / long
    reach = min(
        (wide / 2 + 4) / abs(dx) if abs(dx) > 1e-9 else math.inf,
        (_HIGH / 2 + 4) / abs(dy) if abs(dy) > 1e-9 else math.inf,
    )
    x, y = -dy * aside, dx * aside
    return (a + dx * reach + x, b + dy * reach + y), (c - dx * reach + x, d - dy * reach + y)


def _line(frame: Frame | None) -> tuple[str, str]:
    """ "line 4 of exchange" and the text of that line."""
    if frame is None:
        return "", ""
    source = linecache.getline(frame.file, frame.line).strip()
    return f"line {frame.line} of {frame.function}", source


def _cut(words: str, room: float, size: float) -> str:
    if width(words, size) <= room:
        return words
    while words and width(words + "…", size) > room:
        words = words[:-1]
    return words + "…"
