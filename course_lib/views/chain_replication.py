"""How a push reaches a server and its replica, and what becomes of it when the server dies.

Chain replication (van Renesse & Schneider, OSDI 2004) as the parameter server has it (Li et al.,
OSDI 2014, section 4.4): the server hands a push on, and acknowledges it when the replica has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .palette import OPERATIONS, SEND, WAITS, Fill
from .svg_drawing import SMALL, WIDTH, Picture
from .view import View

_WHO = ("worker", "server", "replica")
_LEFT, _ROW, _BOX = 84, 50, 22  # pixels left of the time, from row to row, of what somebody does
_STEPS = 9  # of time, each as long as a message
_ADDS, _KNOWS = OPERATIONS["F"], Fill("#fae9a8")


@dataclass(frozen=True)
class Message:
    """Sent at `begin`, there one step later."""

    begin: int
    source: str
    target: str
    what: str


@dataclass(frozen=True)
class Deed:
    """What somebody does from `begin` to `end`."""

    begin: int
    end: int
    who: str
    what: str
    fill: Fill = _ADDS


@dataclass(frozen=True)
class Story:
    """What happens, and when the server dies."""

    name: str
    happens: Sequence[Message | Deed]
    dies: int | None = None


def _wait(begin: int, end: int) -> Deed:
    return Deed(begin, end, "worker", "waits", WAITS)


_PUSH = Message(0, "worker", "server", "push 7")
_TAKEN = (_PUSH, Deed(1, 2, "server", "adds 7"), Message(2, "server", "replica", "copy 7"))
STORIES = (
    Story(
        "nobody dies",
        (
            *(_wait(0, 6), *_TAKEN, Deed(3, 4, "replica", "adds 7")),
            Message(4, "replica", "server", "ack 7"),
            Message(5, "server", "worker", "ack 7"),
        ),
    ),
    Story(
        "the server dies before the copy",
        (
            *(_wait(0, 3), _wait(3, 6), _PUSH),
            Message(3, "worker", "replica", "push 7 again"),
            Deed(4, 5, "replica", "adds 7"),
            Message(5, "replica", "worker", "ack 7"),
        ),
        dies=1,
    ),
    Story(
        "the server dies after the copy",
        (
            *(_wait(0, 5), _wait(5, 8), *_TAKEN, Deed(3, 4, "replica", "adds 7")),
            Message(5, "worker", "replica", "push 7 again"),
            Deed(6, 7, "replica", "has 7", _KNOWS),
            Message(7, "replica", "worker", "ack 7"),
        ),
        dies=3,
    ),
)


def chain_replication() -> View:
    """The push of task 7 where nobody dies, and where the server dies before or after its copy."""
    return View(_draw(), "\n\n".join(map(_text, STORIES)))


# ------------------------------------------------------------------------------------------------


def _text(story: Story) -> str:
    lines = {}
    for each in story.happens:
        if isinstance(each, Message):
            lines[each.begin, 1] = f"{each.source} -> {each.target}: {each.what}"
        elif each.fill is not WAITS:
            lines[each.begin, 0] = f"{each.who}: {each.what}"
    if story.dies is not None:
        lines[story.dies, -1] = "server: dies"
    return "\n".join([f"{story.name}:", *(f"  {lines[when]}" for when in sorted(lines))])


def _draw() -> Picture:
    picture = Picture("the push of task 7, its copy on the replica, and the acknowledgements")
    for story in STORIES:
        picture.text(4, picture.height + 12, story.name, bold=True)
        _tell(picture, story, picture.height + 44)
        picture.height += 44 + 2 * _ROW + _BOX
    picture.key({"waits for the acknowledgement": WAITS, "adds the push": _ADDS,
                 "has it already, and adds nothing": _KNOWS})  # fmt: skip
    return picture


def _x(time: float) -> float:
    return _LEFT + time * (WIDTH - 14 - _LEFT) / _STEPS


def _tell(picture: Picture, story: Story, top: float) -> None:
    """A row for each of the three; `top` is the middle of the first."""
    rows = {who: top + _ROW * k for k, who in enumerate(_WHO)}
    for who, y in rows.items():
        lives = story.dies if who == "server" and story.dies is not None else _STEPS
        picture.text(_LEFT - 10, y, who, SMALL, "end")
        picture.line([(_LEFT, y), (_x(lives), y)], "line")
    for each in story.happens:
        if isinstance(each, Deed):
            x, wide = _x(each.begin), _x(each.end) - _x(each.begin) - 1
            hint = f"{each.who} {each.what}"
            y = rows[each.who] - _BOX / 2
            picture.box(x, y, wide, _BOX, each.fill, hint, each.what, key=each.what)
            continue
        down = 1 if rows[each.target] > rows[each.source] else -1
        x, wide = _x(each.begin), _x(1) - _x(0)
        y = rows[each.source] + down * _edge(story, each.source, each.begin)
        end = rows[each.target] - down * _edge(story, each.target, each.begin + 1)
        hint = f"{each.what}, from the {each.source} to the {each.target}"
        picture.arrow((x, y), (x + wide, end), SEND.color, hint=hint)
        near = abs(rows[each.target] - rows[each.source]) == _ROW
        share = 0.5 if near else 0.2  # not on the row that it passes
        words = x + share * wide + (4 if near else 12), y + share * (end - y) - 8 * down
        picture.text(*words, each.what, SMALL)
    if story.dies is not None:
        x, y = _x(story.dies), rows["server"]
        for slope in (-1, 1):
            picture.line([(x - 6, y - 6 * slope), (x + 6, y + 6 * slope)], "alarm", 2.5)
        picture.text(x + 12, y, "dies", SMALL, bold=True, ink="alarm")


def _edge(story: Story, who: str, time: int) -> float:
    """Pixels from the middle of a row to where a message meets it: at a box, if there is one."""
    deeds = (each for each in story.happens if isinstance(each, Deed) and each.who == who)
    return _BOX / 2 if any(deed.begin <= time <= deed.end for deed in deeds) else 1.0
