"""A mesh of three axes as a cube of ranks: its edges are the groups, its slabs the nodes.

Pipeline stages stand beside one another, replicas behind one another, and the ranks that share a
layer above one another. An order of the axes with which other ranks share a node cuts the same cube
into other slabs.
"""

import itertools
import math
from collections.abc import Mapping

from course_lib.techniques.mesh import Mesh, node_of, nodes_spanned
from course_lib.text import counted, listed

from .mesh_links import SENDS, long_place, short_place
from .palette import STEP, Fill
from .svg_drawing import SIZE, SMALL, WIDTH, Picture, Point
from .view import View

AXES = ("pipeline", "data", "tensor")  # across, into the depth, down
LARGEST = 4  # ranks along an axis
_RANK, _NODE = Fill("pale", ink="ink"), Fill("grey", strength=0.2)


def mesh_cube(mesh: Mesh, per_node: int = 8) -> View:
    """Every rank at its coordinates, joined to its neighbours along each axis.

    per_node: ranks of a node, which have to be a box of the mesh. A line that leaves its node is
    dashed. Raises `ValueError` for context parallelism, an axis of more than `LARGEST` ranks, and
    nodes that are no boxes.
    """
    if mesh.context > 1:
        raise ValueError(f"the picture has 3 axes, and {mesh} has {len(mesh.order)}")
    for axis in AXES:
        if getattr(mesh, axis) > LARGEST:
            size = getattr(mesh, axis)
            raise ValueError(f"{axis} = {size}, and the picture has room for {LARGEST}")
    if not _boxes(mesh, per_node):
        raise ValueError(
            f"{counted(mesh.world_size, 'rank')} of {mesh}, {per_node} per node: the nodes do not"
            " hold equal boxes of the mesh"
        )
    nodes = mesh.world_size // min(per_node, mesh.world_size)
    title = f"{mesh}: {counted(mesh.world_size, 'rank')} on {counted(nodes, 'node')}"
    lines = {axis: _sentence(mesh, axis, per_node) for axis in reversed(mesh.order)}
    text = [title, *(f"{axis}: {words}" for axis, words in lines.items())]
    text += [f"node {k}: ranks {listed(_ranks(mesh, k, per_node))}" for k in range(nodes)]
    return View(_draw(mesh, per_node, title, lines), "\n".join(text))


# ------------------------------------------------------------------------------------------------


def _boxes(mesh: Mesh, per_node: int) -> bool:
    """Whether every node has as many ranks along an axis as any other, and all are full."""
    left = min(per_node, mesh.world_size)
    if left < 1:
        return False
    for size in reversed(mesh.shape):
        inside = min(left, size)
        if size % inside or left % inside:
            return False
        left //= inside
    return True


def _ranks(mesh: Mesh, node: int, per_node: int) -> range:
    return range(node * per_node, min((node + 1) * per_node, mesh.world_size))


def _sentence(mesh: Mesh, axis: str, per_node: int) -> str:
    """Who is in the groups along an axis, whether they leave a node, and what they send."""
    size = getattr(mesh, axis)
    if size == 1:
        return "one rank, which sends nothing"
    spanned = nodes_spanned(mesh, axis, per_node)
    where = "inside a node" if spanned == 1 else f"over {spanned} nodes"
    first = listed(mesh.group(axis, 0))
    groups = counted(mesh.world_size // size, "group")
    return f"{groups} of {size}, such as ranks {first}, {where}; {SENDS[axis]}"


class _Places:
    """Where the middle of each rank stands: no box covers another, and no line crosses a box."""

    def __init__(self, mesh: Mesh, top: float) -> None:
        self.mesh = mesh
        self.roomy = roomy = mesh.data <= 2
        self.wide, self.high = (66.0, 34.0) if roomy else (36.0, 22.0)
        self.depth = (84.0, -60.0) if roomy else (36.0, -36.0)
        deep = [side * (mesh.data - 1) for side in self.depth]
        least = deep[0] + self.wide
        room = (WIDTH - 60 - least) / max(mesh.pipeline - 1, 1)
        self.across = min(room, least + 130)
        self.down = self.high - deep[1] + (34 if roomy else 24)
        whole = (mesh.pipeline - 1) * self.across + least
        self.left = (WIDTH - whole) / 2 + self.wide / 2
        self.top = top + self.high / 2 - deep[1]

    def at(self, along: Mapping[str, float]) -> Point:
        """The pixel of coordinates, which may lie between ranks."""
        x = self.left + along["pipeline"] * self.across + along["data"] * self.depth[0]
        return x, self.top + along["tensor"] * self.down + along["data"] * self.depth[1]

    def of(self, rank: int) -> Point:
        return self.at(self.mesh.coordinates(rank))

    @property
    def bottom(self) -> float:
        return self.top + (self.mesh.tensor - 1) * self.down + self.high / 2

    def edge(self, one: int, other: int) -> list[Point]:
        """A line from box to box, which stops where they begin."""
        (a, b), (c, d) = self.of(one), self.of(other)
        sides = [self.wide / 2 / abs(c - a)] if c != a else []
        sides += [self.high / 2 / abs(d - b)] if d != b else []
        share = min(sides)
        dx, dy = share * (c - a), share * (d - b)
        return [(a + dx, b + dy), (c - dx, d - dy)]

    def around(self, ranks: range) -> list[Point]:
        """The outline of the box in which these ranks are."""
        wide, high = self.wide / 2 + 9, self.high / 2 + 9
        corners = [
            (x + right * wide, y + below * high)
            for x, y in map(self.of, ranks)
            for right, below in itertools.product((-1, 1), repeat=2)
        ]
        return _hull(corners)


def _hull(points: list[Point]) -> list[Point]:
    """The corners of the smallest convex outline, in order (Andrew's monotone chain, 1979)."""
    halves = []
    for ordered in (sorted(set(points)), sorted(set(points), reverse=True)):
        half: list[Point] = []
        for x, y in ordered:
            while len(half) > 1:
                (a, b), (c, d) = half[-2:]
                if (c - a) * (y - b) - (d - b) * (x - a) > 0:
                    break
                half.pop()
            half.append((x, y))
        halves.append(half[:-1])
    return halves[0] + halves[1]


def _draw(mesh: Mesh, per_node: int, title: str, lines: Mapping[str, str]) -> Picture:
    picture = Picture(title)
    places = _Places(mesh, picture.height + 34)
    for node in range(math.ceil(mesh.world_size / per_node)):
        outline = places.around(_ranks(mesh, node, per_node))
        picture.shape(outline, _NODE)
        picture.line([*outline, outline[0]], "soft", 0.8)
        x, y = min(outline, key=lambda corner: (corner[1], corner[0]))
        picture.text(x - 4, y - 7, f"node {node}", SMALL, ink="soft")
    for axis in AXES:  # what is nearer stands in front
        for one, other in _neighbours(mesh, axis):
            nodes = sorted({node_of(one, per_node), node_of(other, per_node)})
            where = "inside node" if len(nodes) == 1 else "between nodes"
            hint = f"{axis}: ranks {one} and {other}, {where} {listed(nodes)}"
            dashes = "" if len(nodes) == 1 else "6 4"
            picture.line(places.edge(one, other), STEP[axis].color, 4, dashes, axis, hint)
    for rank in range(mesh.world_size):
        _box(picture, places, rank, per_node)
    picture.height = places.bottom + 22
    for axis, words in lines.items():
        _explain(picture, axis, words)
    at = mesh.coordinates(mesh.world_size - 1)
    said = [f"{short_place(at)}: {long_place(at)}."] if places.roomy else []
    said += ["Dashed: from node to node."] if per_node < mesh.world_size else []
    picture.text(4, picture.height + 10, " ".join(said), SMALL)
    picture.height += 22
    return picture


def _neighbours(mesh: Mesh, axis: str) -> list[tuple[int, int]]:
    return [pair for group in mesh.groups(axis) for pair in itertools.pairwise(group)]


def _box(picture: Picture, places: _Places, rank: int, per_node: int) -> None:
    x, y = places.of(rank)
    at = places.mesh.coordinates(rank)
    left, top = x - places.wide / 2, y - places.high / 2
    hint = f"rank {rank}: {long_place(at)}, on node {node_of(rank, per_node)}"
    picture.box(left, top, places.wide, places.high, _RANK, hint, key="rank")
    picture.text(x, y - (7 if places.roomy else 0), str(rank), SIZE, "middle", bold=True)
    if places.roomy:
        picture.text(x, y + 8, short_place(at), 10, "middle")


def _explain(picture: Picture, axis: str, words: str) -> None:
    """A line of the key: an axis with its colour, and what is true of its groups."""
    picture.height += 10
    y = picture.height
    picture.line([(6, y), (32, y)], STEP[axis].color, 4)
    picture.text(40, y, axis, SMALL, bold=True)
    picture.text(100, y, words, SMALL)
    picture.height += 9
