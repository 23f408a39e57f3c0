"""Tokens on their way to their experts on other ranks, and home: every row at every step.

Dispatch is a sort by expert, an all-to-all and a second sort, since what arrives stands in the
order of the ranks that sent it. Combine undoes them, the last one first.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from course_lib.text import counted, table

from .palette import RANKS
from .svg_drawing import SMALL, WIDTH, Picture, width
from .view import View

STEPS = ("sort", "all-to-all", "sort", "experts", "unsort", "all-to-all", "unsort")
ORDERS = ("text", "by expert", "by rank", "by expert", "outputs", "by rank", "home", "text")
_OUTPUTS = ORDERS.index("outputs")
_LEFT, _RIGHT = 54.0, 14.0  # pixels beside all boxes
_WIDE, _HIGH, _ROW = 62.0, 18.0, 21.0  # pixels: a box, a box, a row


class Row(NamedTuple):
    """A token, its expert, and where it comes from."""

    word: str
    expert: int
    rank: int
    place: int


Stage = list[list[Row]]  # the rows on each rank, in their order


def token_routing(tokens: Sequence[Sequence[tuple[str, int]]], experts: int) -> View:
    """`tokens[rank]` are words with their experts; rank r of n has the r-th of n equal shares.

    Raises `ValueError` for experts that do not spread evenly, and for one that does not exist.
    """
    if not tokens or not 1 <= experts <= len(RANKS):
        raise ValueError(
            f"the picture holds 1 to {len(RANKS)} experts on at least one rank, not {experts} on"
            f" {len(tokens)}"
        )
    if experts % len(tokens):
        raise ValueError(f"{experts} experts cannot be spread evenly over {len(tokens)} ranks")
    for _, expert in (token for row in tokens for token in row):
        if not 0 <= expert < experts:
            raise ValueError(f"there is no expert {expert} among {experts}")
    stages = routed(tokens, experts)
    total = sum(map(len, tokens))
    title = f"{counted(total, 'token')} to {experts} experts on {len(tokens)} ranks, and home"
    return View(_draw(stages, experts, title), _text(stages, title))


def routed(tokens: Sequence[Sequence[tuple[str, int]]], experts: int) -> list[Stage]:
    """All rows in each of `ORDERS`."""
    ranks, share = range(len(tokens)), experts // len(tokens)
    text = [
        [Row(word, expert, rank, place) for place, (word, expert) in enumerate(row)]
        for rank, row in enumerate(tokens)
    ]
    sent = [sorted(rows, key=_expert) for rows in text]
    arrived = [[row for rows in sent for row in rows if row.expert // share == r] for r in ranks]
    ready = [sorted(rows, key=_expert) for rows in arrived]
    there = [text, sent, arrived, ready]
    return [*there, *reversed(there)]


# ------------------------------------------------------------------------------------------------


def _expert(row: Row) -> int:
    return row.expert


def _text(stages: Sequence[Stage], title: str) -> str:
    rows = [["", "order", *(f"rank {rank}" for rank in range(len(stages[0])))]]
    for step, order, stage in zip(("", *STEPS), ORDERS, stages, strict=True):
        rows.append([step, order, *(", ".join(map(_named, each)) or "-" for each in stage)])
    return "\n".join([title, table(rows, left=len(rows[0]))])


def _named(row: Row) -> str:
    return f"{row.word}:{row.expert}"


def _draw(stages: Sequence[Stage], experts: int, title: str) -> Picture:
    picture = Picture(title)
    gap = (WIDTH - _RIGHT - _LEFT - len(ORDERS) * _WIDE) / len(STEPS)
    columns = [_LEFT + index * (_WIDE + gap) for index in range(len(ORDERS))]
    top = picture.height + 48
    for step, x in zip(STEPS, columns, strict=False):
        picture.text(x + _WIDE + gap / 2, top - 32, step, SMALL, "middle", bold=True)
    for order, x in zip(ORDERS, columns, strict=True):
        picture.text(x + _WIDE / 2, top - 13, order, SMALL, "middle", ink="soft")
    bands = _bands(stages, top)
    at = [_middles(stage, bands) for stage in stages]
    for x, (here, there) in zip(columns, itertools.pairwise(at), strict=False):
        for row, y in here.items():
            ends = (x + _WIDE, y), (x + _WIDE + gap, there[row])
            picture.message(*ends, RANKS[row.expert].color, _told(row), row.word)
    for index, (x, stage) in enumerate(zip(columns, at, strict=True)):
        for row, y in stage.items():
            _box(picture, x, y, row, index)
    for rank, y in enumerate(bands[:-1]):
        picture.text(_LEFT - 8, (y + bands[rank + 1] - 12) / 2, f"rank {rank}", SMALL, "end")
        if rank:
            picture.line([(4, y - 6), (WIDTH - 4, y - 6)], "line", 0.8)
    picture.height = bands[-1] + 8
    picture.player(columns[0], columns[-1] + _WIDE, top, bands[-1] - 4, counted(7, "step"))
    share = experts // len(stages[0])
    picture.key(
        {f"expert {e}, on rank {e // share}": fill for e, fill in enumerate(RANKS[:experts])}
    )
    return picture


def _bands(stages: Sequence[Stage], top: float) -> list[float]:
    """Where each rank begins, as high as the most rows that it ever has, and where the last ends"""
    bands = [top]
    for rank in range(len(stages[0])):
        most = max(len(stage[rank]) for stage in stages)
        bands.append(bands[-1] + max(most, 1) * _ROW + 12)
    return bands


def _middles(stage: Stage, bands: Sequence[float]) -> dict[Row, float]:
    return {
        row: bands[rank] + (number + 0.5) * _ROW
        for rank, rows in enumerate(stage)
        for number, row in enumerate(rows)
    }


def _box(picture: Picture, x: float, y: float, row: Row, index: int) -> None:
    fill = RANKS[row.expert]
    word = row.word + ("'" if index >= _OUTPUTS else "")
    room = _WIDE - 18
    size = next((size for size in (SMALL, 10.0, 9.0) if width(word, size) <= room), 8.0)
    picture.box(x, y - _HIGH / 2, _WIDE, _HIGH, fill, _told(row), key="row")
    picture.text(x + 5, y, word, size, ink=fill.ink)
    picture.text(x + _WIDE - 4, y, str(row.expert), 9, "end", ink=fill.ink)


def _told(row: Row) -> str:
    return f"{row.word}, token {row.place} of rank {row.rank}, for expert {row.expert}"
