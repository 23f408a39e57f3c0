"""Ranks that are stuck: who waits for whom, each rank's line, and the circle if there is one."""

import itertools
import linecache
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from course_lib.observe import CommEvent, Frame, Trace
from course_lib.observe.wait_for_graph import awaited, wait_cycle
from course_lib.text import listed

from .palette import WAITS, Fill
from .svg_drawing import SMALL, WIDTH, Picture, Point, width
from .view import View

LARGEST = 12  # ranks whose lines can be read
_FEW = 4  # ranks that may stand in one row
_WIDE, _LINE = 290, 17  # pixels of a rank's card, and of a line in it
_APART, _ABOVE, _ASIDE = 46, 34, 252  # pixels between cards in a row, in a column, from the middle
_ELSEWHERE = Fill("page", ink="ink")  # and an outline


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


@dataclass(frozen=True)
class _Card:
    """What a rank does, in lines, and where that stands; x and y are its middle."""

    lines: tuple[str, ...]
    x: float
    y: float
    wide: float

    @property
    def high(self) -> float:
        return _LINE * len(self.lines) + 11

    def sides(self) -> list[tuple[Point, Point]]:
        """The middle of each side, and the way out of it."""
        ways = [(-1, 0), (1, 0), (0, -1), (0, 1)]
        reach, rise = self.wide / 2 + 3, self.high / 2 + 3
        return [((self.x + a * reach, self.y + b * rise), (a, b)) for a, b in ways]


def _draw(
    edges: Mapping[int, list[int]], circle: list[int], doing: Mapping[int, str],
    frames: Mapping[int, Frame],
) -> Picture:  # fmt: skip
    if circle:
        title = f"who waits for whom: ranks {listed(sorted(circle))} in a circle, so none goes on"
    else:
        waiting: dict[str, list[int]] = {}
        for one, others in edges.items():
            waiting.setdefault(_ranks(others), []).append(one)
        pairs = (f"{_ranks(ones)} for {others}" for others, ones in waiting.items())
        title = f"who waits for whom: {', '.join(pairs)}"
    picture = Picture(title)
    cards = _placed(edges, doing, frames, picture.height + 12)
    pitch = max(card.high for card in cards.values()) + _ABOVE
    follows = dict(zip(circle, [*circle[1:], *circle[:1]], strict=True))
    for rank, others in edges.items():
        for other in others:
            red = follows.get(rank) == other
            # Two that wait for each other have an arrow each, side by side
            aside = 9 if rank in edges.get(other, ()) else 0
            way = _way(cards[rank], cards[other], 1.5 * pitch, aside)
            color, thick = ("alarm", 2.5) if red else ("soft", 1.5)
            if way[1:-1]:
                picture.line(way[:-1], color, thick)
            hint = f"rank {rank} waits for rank {other}"
            picture.arrow(way[-2], way[-1], color, thick, hint)
    for rank, card in cards.items():
        left, top = card.x - card.wide / 2, card.y - card.high / 2
        where, source = _line(frames.get(rank))
        hint = "\n".join(filter(None, (f"rank {rank} {doing[rank]}", where, source)))
        fill = WAITS if rank in edges else _ELSEWHERE
        picture.box(left, top, card.wide, card.high, fill, hint, key="rank")
        corners = [(left, top), (left + card.wide, top), (left + card.wide, top + card.high),
                   (left, top + card.high), (left, top)]  # fmt: skip
        if rank in follows:
            picture.line(corners, "alarm", 2.5)
        elif rank not in edges:
            picture.line(corners, "soft", dashes="3 3")
        bold = len(card.lines) - sum(map(bool, (where, source)))
        for row, line in enumerate(card.lines):
            y = top + 14 + _LINE * row
            picture.text(left + 8, y, _cut(line, card.wide - 14, SMALL), SMALL, bold=row < bold)
    picture.height = max(card.y + card.high / 2 for card in cards.values()) + 12
    return picture


def _placed(
    edges: Mapping[int, list[int]], doing: Mapping[int, str], frames: Mapping[int, Frame],
    top: float,
) -> dict[int, _Card]:  # fmt: skip
    """The cards of all ranks: in a row if each waits only for a neighbour in it, else round.

    Round is down on the left and up on the right, so that a circle of ranks is one here too.
    """
    n = len(doing)
    row = _in_a_row(edges, n)
    wide = min(_WIDE, (WIDTH - 8 + _APART) / n - _APART) if row else _WIDE
    lines = {}
    for rank, what in doing.items():
        head = [f"rank {rank} {what}"]
        if width(head[0], SMALL, bold=True) > wide - 14:
            head = [f"rank {rank}", what]
        lines[rank] = (*head, *filter(None, _line(frames.get(rank))))
    tallest = max(_Card(each, 0, 0, wide).high for each in lines.values())
    if row:
        first = (WIDTH - len(row) * (wide + _APART) + _APART + wide) / 2
        return {
            rank: _Card(lines[rank], first + place * (wide + _APART), top + tallest / 2, wide)
            for place, rank in enumerate(row)
        }
    down, pitch = (n + 1) // 2, tallest + _ABOVE
    cards = {}
    for rank, each in lines.items():
        level = rank if rank < down else n - 1 - rank + n % 2 / 2
        x = WIDTH / 2 + (_ASIDE if rank >= down else -_ASIDE)
        cards[rank] = _Card(each, x, top + tallest / 2 + level * pitch, wide)
    return cards


def _in_a_row(edges: Mapping[int, list[int]], n: int) -> Sequence[int]:
    """An order of up to four ranks in which all who wait do so for a neighbour, if there is one."""
    if n > _FEW:
        return ()
    pairs = [(one, other) for one, others in edges.items() for other in others]
    orders = itertools.permutations(range(n))
    return next((o for o in orders if all(abs(o.index(a) - o.index(b)) == 1 for a, b in pairs)), ())


def _ranks(numbers: list[int]) -> str:
    """ "rank 1", "ranks 1 and 2"."""
    return f"rank{'s' if len(numbers) > 1 else ''} {listed(numbers)}"


def _way(one: _Card, other: _Card, between: float, aside: float) -> list[Point]:
    """Where an arrow goes: from the middle of a side to that of another, the shortest way.

    between  the least distance at which two cards of a column have another between them, which the
             arrow then goes round
    aside    pixels to the right, for two that wait for each other
    """
    if one.x == other.x and abs(one.y - other.y) > between:
        inner = math.copysign(one.wide / 2 + 3, WIDTH / 2 - one.x)
        out = one.x + inner + math.copysign(8 + abs(one.y - other.y) / 9, inner)
        return [(one.x + inner, one.y), (out, one.y), (out, other.y), (one.x + inner, other.y)]
    ways = [
        (start, end)
        for start, out in one.sides()
        for end, into in other.sides()
        if _along(start, end, out) > 0 > _along(start, end, into)
    ]
    start, end = min(ways, key=lambda way: math.dist(*way))
    long = math.dist(start, end)
    x, y = -(end[1] - start[1]) / long * aside, (end[0] - start[0]) / long * aside
    return [(start[0] + x, start[1] + y), (end[0] + x, end[1] + y)]


def _along(start: Point, end: Point, way: Point) -> float:
    return (end[0] - start[0]) * way[0] + (end[1] - start[1]) * way[1]


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
