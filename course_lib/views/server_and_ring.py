"""Two ways to train with many machines: workers round a server, and the same workers in a ring."""

import math

from .palette import RANKS, RECEIVE, SEND, Fill
from .svg_drawing import SMALL, WIDTH, Picture, Point
from .view import View

LARGEST = 8  # workers that stand apart
_MIDDLE, _RADIUS = 168.0, 128.0  # pixels from the top of a panel to its middle; of the circle
_SERVER, _WORKER = (150.0, 50.0), (94.0, 40.0)  # pixels of a box
_ASIDE = 7.0  # pixels that a push and a pull keep to their side
_HOLDS, _READS = Fill("#f2d264"), RANKS[3]


def server_and_ring(workers: int = 4) -> View:
    """2 to 8 workers: with a parameter server on the left, without one on the right."""
    if not 2 <= workers <= LARGEST:
        raise ValueError(f"the picture holds 2 to {LARGEST} workers, not {workers}")
    picture = Picture("parameters on a server, or a copy on every worker")
    top = picture.height + 14
    _star(picture, workers, (WIDTH / 4, top + _MIDDLE))
    _ring(picture, workers, (3 * WIDTH / 4, top + _MIDDLE))
    picture.height = top + _MIDDLE + _RADIUS + _WORKER[1] / 2
    picture.key({"push: a gradient": SEND, "pull: parameters": RECEIVE,
                 "keeps parameters": _HOLDS, "keeps examples": _READS})  # fmt: skip
    return View(picture, _text(workers))


# ------------------------------------------------------------------------------------------------


def _text(workers: int) -> str:
    lines = [f"parameter server: {workers} workers push gradients to it and pull parameters"]
    lines.append("ring: no server; each worker sends to the next")
    lines += [f"  worker {k} to worker {(k + 1) % workers}" for k in range(workers)]
    return "\n".join(lines)


def _star(picture: Picture, workers: int, middle: Point) -> None:
    places = _circle(workers, middle)
    for worker, place in enumerate(places):
        pushed = _between(place, middle, _WORKER, _SERVER)
        picture.arrow(*pushed, SEND.color, 2, f"worker {worker} pushes its gradient")
        pulled = _between(middle, place, _SERVER, _WORKER)
        picture.arrow(*pulled, RECEIVE.color, 2, f"worker {worker} pulls the parameters")
    _box(picture, middle, _SERVER, _HOLDS, "server", "parameters")
    for worker, place in enumerate(places):
        _box(picture, place, _WORKER, _READS, f"worker {worker}", "examples")


def _ring(picture: Picture, workers: int, middle: Point) -> None:
    places = _circle(workers, middle)
    for worker, place in enumerate(places):
        other = (worker + 1) % workers
        way = _between(place, places[other], _WORKER, _WORKER)
        picture.arrow(*way, SEND.color, 2, f"worker {worker} sends to worker {other}")
    for worker, (x, y) in enumerate(places):
        wide, high = _WORKER
        picture.box(x - wide / 2, y - high / 2, wide, high / 2, _READS, key="worker")
        picture.box(x - wide / 2, y, wide, high / 2, _HOLDS, key="copy")
        picture.text(x, y - high / 4, f"worker {worker}", SMALL, "middle", True, "#000000")
        picture.text(x, y + high / 4, "its own copy", SMALL, "middle", ink="#000000")


def _box(
    picture: Picture, middle: Point, size: Point, fill: Fill, name: str, holds: str
) -> None:  # fmt: skip
    (x, y), (wide, high) = middle, size
    picture.box(x - wide / 2, y - high / 2, wide, high, fill, f"{name} keeps {holds}", key=name)
    picture.text(x, y - 8, name, SMALL, "middle", True, "#000000")
    picture.text(x, y + 8, holds, SMALL, "middle", ink="#000000")


def _circle(count: int, middle: Point) -> list[Point]:
    """Places round the middle, the first at the top left, clockwise."""
    turns = (
        2 * math.pi * (k + 0.5) / count - math.pi / 2 - 2 * math.pi / count for k in range(count)
    )
    wide = 1.12 * _RADIUS
    return [(middle[0] + wide * math.cos(t), middle[1] + _RADIUS * math.sin(t)) for t in turns]


def _between(one: Point, other: Point, size: Point, others: Point) -> tuple[Point, Point]:
    """From the edge of one box to that of the other, a little to the right of the way."""
    long = math.dist(one, other)
    dx, dy = (other[0] - one[0]) / long, (other[1] - one[1]) / long
    x, y = -dy * _ASIDE, dx * _ASIDE

    def reach(box: Point) -> float:
        return min(
            side / 2 / abs(part) if abs(part) > 1e-9 else math.inf
            for side, part in zip(box, (dx, dy), strict=True)
        ) + 4  # fmt: skip

    start, end = reach(size), reach(others)
    return (
        (one[0] + dx * start + x, one[1] + dy * start + y),
        (other[0] - dx * end + x, other[1] - dy * end + y),
    )
