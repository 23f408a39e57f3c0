"""Two ways to train with many machines: workers round a server, and the same workers in a ring."""

import math

from .palette import RANKS, RECEIVE, SEND, Fill
from .svg_drawing import SMALL, WIDTH, Picture, Point
from .view import View

LARGEST = 8  # workers that stand apart
_RADIUS = 150.0  # pixels of the circle on which the workers stand
_SERVER, _WORKER = (112.0, 46.0), (104.0, 42.0)  # pixels of a box
_ASIDE = 8.0  # pixels that a push and a pull keep to their side
_HOLDS, _READS = RANKS[1], RANKS[3]


def server_and_ring(workers: int = 4) -> View:
    """3 to 8 workers: with a parameter server on the left, without one on the right."""
    if not 3 <= workers <= LARGEST:
        raise ValueError(f"the picture holds 3 to {LARGEST} workers, not {workers}")
    picture = Picture("parameters on a server, or a copy on every worker")
    heights = [y for _, y in _circle(workers, (0, 0))]
    middle = picture.height + 6 + _WORKER[1] / 2 - min(heights)
    _star(picture, workers, (WIDTH / 4, middle))
    _ring(picture, workers, (3 * WIDTH / 4, middle))
    picture.height = middle + max(heights) + _WORKER[1] / 2 + 6
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
        picture.text(x, y + high / 4, "all parameters", SMALL, "middle", ink="#000000")


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
    wide = 1.05 * _RADIUS
    return [(middle[0] + wide * math.cos(t), middle[1] + _RADIUS * math.sin(t)) for t in turns]


def _between(one: Point, other: Point, size: Point, others: Point) -> tuple[Point, Point]:
    """From the edge of one box to that of the other, a little to the right of the way."""
    long = math.dist(one, other)
    way = (other[0] - one[0]) / long, (other[1] - one[1]) / long
    aside = -way[1] * _ASIDE, way[0] * _ASIDE
    back = -way[0], -way[1]
    start, end = _edge(size, aside, way) + 3, long - _edge(others, aside, back) - 3
    x, y = one[0] + aside[0], one[1] + aside[1]
    return (x + way[0] * start, y + way[1] * start), (x + way[0] * end, y + way[1] * end)


def _edge(size: Point, start: Point, way: Point) -> float:
    """How far it is to the edge of a box around (0, 0) from a point inside it."""
    return min(
        (math.copysign(side / 2, part) - at) / part if abs(part) > 1e-9 else math.inf
        for side, at, part in zip(size, start, way, strict=True)
    )
