"""A mesh on nodes: which ranks one rank talks to, about what, and over which kind of link."""

import functools
from collections.abc import Mapping
from typing import Any

from course_lib.techniques.mesh import AXES, Mesh, node_of
from course_lib.text import counted, listed

from .palette import STEP, Fill
from .svg_drawing import SMALL, WIDTH, Picture, width
from .view import View
from .widgets import Control, Explorer, explore

LARGEST = 64  # ranks
SENDS = {
    "tensor": "activations, in every layer",
    "context": "keys and values, in every layer",
    "data": "gradients, once per step",
    "expert": "tokens to the experts and back, in every layer that has them",
    "pipeline": "activations between neighbours, once per microbatch",
}
_SELF, _OTHER = Fill("ink", ink="reverse"), Fill("pale", ink="ink")
_ACROSS, _HIGH, _LEFT = 8, 40, 12  # ranks in a row, pixels of one, pixels left of them


def mesh_links(mesh: Mesh, per_node: int = 8, rank: int = 0) -> View:
    """All ranks, `per_node` of them in a frame, with the groups of `rank` in colours."""
    if mesh.world_size > LARGEST:
        raise ValueError(f"the picture holds {LARGEST} ranks, and {mesh} has {mesh.world_size}")
    if not 1 <= per_node <= _ACROSS:
        raise ValueError(f"a node in the picture has 1 to {_ACROSS} ranks, not {per_node}")
    # Experts fold into the data axis: whoever is in both groups is named by the smaller one.
    axes = [*(["expert"] if mesh.expert > 1 else []), *reversed(mesh.order)]
    groups = {axis: mesh.group(axis, rank) for axis in axes}
    lines = {axis: _sentence(axis, group, per_node) for axis, group in groups.items()}
    title = f"{mesh}: rank {rank} and whom it talks to"
    text = "\n".join([title, *lines.values()])
    return View(_draw(mesh, per_node, rank, groups, title, lines), text)


def chosen_mesh(
    pipeline: int = 2,
    data: int = 2,
    tensor: int = 4,
    context: int = 1,
    expert: int = 1,
    per_node: int = 8,
    innermost: str = "tensor",
    rank: int = 0,
) -> View:
    """`mesh_links` of a mesh by its sizes; a rank beyond the last stands for the last.

    innermost: the axis along which neighbours in rank are neighbours; the others keep their order.
    """
    order = (*(axis for axis in AXES if axis != innermost), innermost)
    sizes = {"pipeline": pipeline, "data": data, "tensor": tensor, "context": context}
    mesh = Mesh(**sizes, expert=expert, order=order)
    return mesh_links(mesh, per_node, min(rank, mesh.world_size - 1))


def mesh_explorer(**start: Any) -> Explorer:
    """`chosen_mesh` under sliders. start: what is shown first, such as tensor=2, per_node=4."""
    sizes = [1, 2, 4, 8]
    return explore(
        functools.partial(chosen_mesh, **start),
        pipeline=Control(sizes, "pipeline: stages of the model"),
        data=Control(sizes, "data: replicas"),
        tensor=Control(sizes, "tensor: parts of each layer"),
        context=Control(sizes, "context: parts of each sequence"),
        expert=Control(sizes, "expert: ranks of data per set"),
        per_node=Control(sizes, "ranks per node"),
        innermost=Control(AXES, "innermost axis"),
        rank=Control(range(LARGEST), "rank in colours"),
    )


def short_place(at: Mapping[str, int]) -> str:
    """Coordinates where there is little room: "p0 d1 t0"."""
    return " ".join(f"{axis[0]}{place}" for axis, place in at.items())


def long_place(at: Mapping[str, int]) -> str:
    """Coordinates in words."""
    return ", ".join(f"{axis} {place}" for axis, place in at.items())


# ------------------------------------------------------------------------------------------------


def _sentence(axis: str, group: list[int], per_node: int) -> str:
    if len(group) == 1:
        return f"{axis}: nobody, since the axis has one rank"
    nodes = {node_of(rank, per_node) for rank in group}
    where = "inside one node" if len(nodes) == 1 else f"over {counted(len(nodes), 'node')}"
    return f"{axis}: ranks {listed(group)}, {where}; {SENDS[axis]}"


def _draw(
    mesh: Mesh, per_node: int, rank: int, groups: dict[str, list[int]], title: str,
    lines: Mapping[str, str],
) -> Picture:  # fmt: skip
    picture = Picture(title)
    of = {peer: axis for axis, group in reversed(groups.items()) for peer in group if peer != rank}
    for axis, line in lines.items():
        y = picture.height + 10
        if axis in of.values():
            picture.box(4, y - 5, 16, 10, STEP[axis], key="key")
        picture.height = picture.paragraph(26, y, line, WIDTH - 30) - 8
    top = picture.height + 22
    wide = (WIDTH - 2 * _LEFT) / _ACROSS
    beside = _ACROSS // per_node  # nodes in a row
    for each in range(mesh.world_size):
        node, place = node_of(each, per_node), each % per_node
        x = _LEFT + (node % beside * per_node + place) * wide
        y = top + node // beside * (_HIGH + 26)
        if place == 0:
            picture.text(x, y - 8, f"node {node}", SMALL, ink="soft")
            last = min(per_node, mesh.world_size - each)
            ends = [(x, y + _HIGH + 4), (x + last * wide - 10, y + _HIGH + 4)]
            picture.line(ends, "soft", 2)
        fill = _SELF if each == rank else STEP[of[each]] if each in of else _OTHER
        at = mesh.coordinates(each)
        hint = f"rank {each}: {long_place(at)}, on node {node}"
        if each in of:
            hint += f"\nin the {of[each]} group of rank {rank}"
        picture.box(x, y, wide - 10, _HIGH, fill, hint, key="rank")
        picture.text(x + (wide - 10) / 2, y + 13, str(each), SMALL, "middle", True, fill.ink)
        short = short_place(at)
        size = 10 if width(short, 10) < wide - 12 else 9
        picture.text(x + (wide - 10) / 2, y + 28, short, size, "middle", ink=fill.ink)
        picture.height = y + _HIGH + 8
    others = len(of) + 1 < mesh.world_size
    picture.key({f"rank {rank}": _SELF} | ({"in none of its groups": _OTHER} if others else {}))
    at = mesh.coordinates(mesh.world_size - 1)
    written = f"{short_place(at)}: {long_place(at)}"
    picture.text(WIDTH - 14 - width(written, SMALL), picture.height - 12, written, SMALL)
    return picture
