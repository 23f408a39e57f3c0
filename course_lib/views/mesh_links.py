"""A mesh on nodes: which ranks one rank talks to, about what, and over which kind of link."""

import functools
from typing import Any

from course_lib.techniques.mesh import AXES, Mesh, node_of
from course_lib.text import counted, listed

from .palette import PAPER, STEP, Fill
from .svg_drawing import SMALL, WIDTH, Picture, width
from .view import View
from .widgets import Control, Explorer, explore

LARGEST = 64  # ranks
_SENDS = {
    "tensor": "activations, in every layer",
    "context": "keys and values, in every layer",
    "data": "gradients, once per step",
    "expert": "tokens to the experts and back, in every layer that has them",
    "pipeline": "activations between neighbours, once per microbatch",
}
_FILLS = {axis: STEP[axis]._replace(hatch="") for axis in _SENDS}  # words stand in the boxes
_SELF, _OTHER = Fill("#4a4a4a", ink=PAPER), Fill("#dddddd")
_ACROSS, _HIGH, _LEFT = 8, 40, 12  # ranks in a row, pixels of one, pixels left of them


def mesh_links(mesh: Mesh, per_node: int = 8, rank: int = 0) -> View:
    """All ranks, `per_node` of them in a frame, with the groups of `rank` in colours."""
    if mesh.world_size > LARGEST:
        raise ValueError(f"the picture holds {LARGEST} ranks, and {mesh} has {mesh.world_size}")
    if not 1 <= per_node <= _ACROSS:
        raise ValueError(f"a node in the picture has 1 to {_ACROSS} ranks, not {per_node}")
    # Experts fold into the data axis: whoever is in both groups is named by the smaller one.
    axes = [*mesh.order, *(["expert"] if mesh.expert > 1 else [])]
    groups = {axis: mesh.group(axis, rank) for axis in axes}
    lines = [_sentence(axis, group, per_node) for axis, group in groups.items()]
    title = f"{mesh}: rank {rank} and whom it talks to"
    return View(_draw(mesh, per_node, rank, groups, title, lines), "\n".join([title, *lines]))


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
        height=240,
        pipeline=Control(sizes, "pipeline: stages of the model"),
        data=Control(sizes, "data: replicas"),
        tensor=Control(sizes, "tensor: parts of each layer"),
        context=Control(sizes, "context: parts of each sequence"),
        expert=Control(sizes, "expert: ranks of data per set"),
        per_node=Control(sizes, "ranks per node"),
        innermost=Control(AXES, "innermost axis"),
        rank=Control(range(LARGEST), "rank in colours"),
    )


# ------------------------------------------------------------------------------------------------


def _sentence(axis: str, group: list[int], per_node: int) -> str:
    if len(group) == 1:
        return f"{axis}: nobody, since the axis has one rank"
    nodes = {node_of(rank, per_node) for rank in group}
    where = "inside one node" if len(nodes) == 1 else f"over {counted(len(nodes), 'node')}"
    return f"{axis}: ranks {listed(group)}, {where}; {_SENDS[axis]}"


def _draw(
    mesh: Mesh, per_node: int, rank: int, groups: dict[str, list[int]], title: str,
    lines: list[str],
) -> Picture:  # fmt: skip
    picture = Picture(title)
    for line in lines:
        picture.height = picture.paragraph(4, picture.height + 8, line, WIDTH - 8) - 4
    top = picture.height + 16
    wide = (WIDTH - 2 * _LEFT) / _ACROSS
    beside = _ACROSS // per_node  # nodes in a row
    of = {peer: axis for axis, group in groups.items() for peer in group if peer != rank}
    for each in range(mesh.world_size):
        node, place = node_of(each, per_node), each % per_node
        x = _LEFT + (node % beside * per_node + place) * wide
        y = top + node // beside * (_HIGH + 26)
        if place == 0:
            picture.text(x, y - 8, f"node {node}", SMALL, ink="soft")
            last = min(per_node, mesh.world_size - each)
            ends = [(x, y + _HIGH + 4), (x + last * wide - 10, y + _HIGH + 4)]
            picture.line(ends, "soft", 2)
        fill = _SELF if each == rank else _FILLS[of[each]] if each in of else _OTHER
        at = mesh.coordinates(each)
        said = ", ".join(f"{axis} {at[axis]}" for axis in mesh.order)
        hint = f"rank {each}: {said}, on node {node}"
        if each in of:
            hint += f"\nin the {of[each]} group of rank {rank}"
        picture.box(x, y, wide - 10, _HIGH, fill, hint, key="rank")
        if each == rank:  # black on a dark page has no edge of its own
            ends = [(x, y), (x + wide - 10, y), (x + wide - 10, y + _HIGH), (x, y + _HIGH), (x, y)]
            picture.line(ends, "ink", 1.5)
        picture.text(x + (wide - 10) / 2, y + 13, str(each), SMALL, "middle", True, fill.ink)
        short = " ".join(f"{axis[0]}{at[axis]}" for axis in mesh.order)
        size = 10 if width(short, 10) < wide - 12 else 9
        picture.text(x + (wide - 10) / 2, y + 28, short, size, "middle", ink=fill.ink)
        picture.height = y + _HIGH + 8
    shown = [axis for axis in reversed(groups) if axis in of.values()]
    key = {f"rank {rank}": _SELF} | {f"its {axis} group": _FILLS[axis] for axis in shown}
    picture.key(key | {"neither": _OTHER})
    return picture
