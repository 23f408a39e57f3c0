"""Which server has which keys before and after one more joins, and which keys that moves."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from course_lib.text import table

from .palette import RANKS, Fill
from .svg_drawing import SMALL, WIDTH, Picture, width
from .view import View

Owners = Sequence[int]
_LEFT, _HIGH = 64, 20  # pixels left of the keys, and of a strip
_MOVED = Fill("#808080")  # no colour of a server


def key_owners(placements: Mapping[str, tuple[Owners, Owners]]) -> View:
    """For each of the named placements the owner of every key, before and after.

    Keys lie from left to right in the order in which they are given, such as up the ring.
    """
    if not placements:
        raise ValueError("there is no placement to show")
    for name, (before, after) in placements.items():
        if len(before) != len(after) or not before:
            raise ValueError(f"{name}: owners of {len(before)} keys before, of {len(after)} after")
        if (servers := max(*before, *after) + 1) > len(RANKS):
            raise ValueError(f"{name}: {servers} servers, at most {len(RANKS)} can be told apart")
    text = "\n\n".join(_text(name, *owners) for name, owners in placements.items())
    return View(_draw(placements), text)


# ------------------------------------------------------------------------------------------------


def _moved(before: Owners, after: Owners) -> list[bool]:
    return [a != b for a, b in zip(before, after, strict=True)]


def _head(name: str, before: Owners, after: Owners) -> str:
    moved = _moved(before, after)
    return f"{name}: {sum(moved) / len(moved):.0%} of the keys move"


def _text(name: str, before: Owners, after: Owners) -> str:
    then, now = Counter(before), Counter(after)
    rows: list[Sequence[object]] = [["", "before", "after"]]
    rows += [
        [f"server {server}", f"{then[server] / len(before):.0%}", f"{now[server] / len(after):.0%}"]
        for server in range(max(*before, *after) + 1)
    ]
    return "\n".join([_head(name, before, after), table(rows)])


def _draw(placements: Mapping[str, tuple[Owners, Owners]]) -> Picture:
    heads = [_head(name, *owners) for name, owners in placements.items()]
    picture = Picture("")
    picture.title = "; ".join(heads)
    servers = 0
    for head, (before, after) in zip(heads, placements.values(), strict=True):
        picture.text(4, picture.height + 10, head, bold=True)
        y = picture.height + 22
        for when, owners in (("before", before), ("after", after)):
            picture.text(_LEFT - 8, y + _HIGH / 2, when, SMALL, "end")
            for owner, x, wide, share in _runs(owners):
                word = str(owner) if width(str(owner), SMALL) < wide - 3 else ""
                hint = f"{when}: server {owner} has {share:.1%} of all keys here"
                gap = 1 if wide > 4 else 0
                picture.box(x, y, wide - gap, _HIGH, RANKS[owner], hint, word, key="server")
            y += _HIGH + 3
        picture.text(_LEFT - 8, y + 5, "moved", SMALL, "end")
        for moves, x, wide, share in _runs(_moved(before, after)):
            if moves:
                hint = f"{share:.1%} of all keys move here"
                picture.box(x, y, max(wide, 0.7), 10, _MOVED, hint, key="moved")
        picture.height = y + 18
        servers = max(servers, *before, *after)
    picture.key({f"server {server}": RANKS[server] for server in range(servers + 1)})
    return picture


def _runs(owners: Sequence[int]) -> Iterator[tuple[int, float, float, float]]:
    """(owner, left, width, share of all) for keys beside one another that have one owner."""
    start, room = 0, WIDTH - 14 - _LEFT
    for owner, same in itertools.groupby(owners):
        count = sum(1 for _ in same)
        share = count / len(owners)
        yield owner, _LEFT + room * start / len(owners), room * share, share
        start += count
