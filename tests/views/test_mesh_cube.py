"""The edges of the cube are the groups of the mesh, and its slabs are the nodes."""

import itertools
import re

import pytest

from course_lib.techniques.mesh import Mesh, node_of
from course_lib.views.mesh_cube import mesh_cube
from tests.views.reading import boxes, tree, words

SMALL = Mesh(pipeline=2, data=2, tensor=2)
TENSOR_OUTSIDE = Mesh(pipeline=2, data=2, tensor=2, order=("tensor", "data", "pipeline"))
LARGE = Mesh(pipeline=4, data=4, tensor=4)


def edges(view):
    """(axis, one rank, the other, whether it is dashed) of each line between two ranks."""
    found = set()
    for line in tree(view).iter("{http://www.w3.org/2000/svg}polyline"):
        if axis := line.get("data-key"):
            hint = line.findtext("{http://www.w3.org/2000/svg}title")
            one, other = re.match(rf"{axis}: ranks (\d+) and (\d+), ", hint).groups()
            found.add((axis, int(one), int(other), line.get("stroke-dasharray") is not None))
    return found


@pytest.mark.parametrize(
    ("mesh", "per_node"),
    [(SMALL, 4), (SMALL, 8), (SMALL, 16), (TENSOR_OUTSIDE, 4), (LARGE, 8), (LARGE, 2)],
)
def test_neighbours_along_each_axis_are_joined_and_dashed_where_they_leave_a_node(mesh, per_node):
    wanted = {
        (axis, one, other, node_of(one, per_node) != node_of(other, per_node))
        for axis in mesh.order
        for group in mesh.groups(axis)
        for one, other in itertools.pairwise(group)
    }
    assert edges(mesh_cube(mesh, per_node)) == wanted


@pytest.mark.parametrize("mesh", [SMALL, LARGE, Mesh(data=4), Mesh(pipeline=4, tensor=2)])
def test_no_box_covers_another_and_all_lie_in_the_picture(mesh):
    view = mesh_cube(mesh, 1)
    ranks = boxes(view, "rank")
    assert [box.hint.split(":")[0] for box in ranks] == [f"rank {r}" for r in range(len(ranks))]
    for one, other in itertools.combinations(ranks, 2):
        beside = one.right <= other.x or other.right <= one.x
        assert beside or one.y + one.high <= other.y or other.y + other.high <= one.y
    assert all(box.x >= 0 and box.right <= 840 for box in ranks)


def test_a_box_tells_its_coordinates_and_a_node_is_named():
    view = mesh_cube(SMALL, 4)
    hints = [box.hint for box in boxes(view, "rank")]
    assert hints[5] == "rank 5: pipeline 1, data 0, tensor 1, on node 1"
    assert "p1 d0 t1" in words(view)
    assert {"node 0", "node 1"} < set(words(view))


def test_words_say_which_groups_leave_a_node():
    assert mesh_cube(SMALL, 4).text.splitlines() == [
        "pipeline 2 x data 2 x tensor 2: 8 ranks on 2 nodes",
        "tensor: 4 groups of 2, such as ranks 0 and 1, inside a node; activations, in every layer",
        "data: 4 groups of 2, such as ranks 0 and 2, inside a node; gradients, once per step",
        "pipeline: 4 groups of 2, such as ranks 0 and 4, over 2 nodes; activations between"
        " neighbours, once per microbatch",
        "node 0: ranks 0, 1, 2 and 3",
        "node 1: ranks 4, 5, 6 and 7",
    ]
    outside = mesh_cube(TENSOR_OUTSIDE, 4).text
    assert "tensor: 4 groups of 2, such as ranks 0 and 4, over 2 nodes" in outside
    assert "data: one rank, which sends nothing" in mesh_cube(Mesh(tensor=2)).text


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(ValueError, match=r"3 axes, and .* has 4"):
        mesh_cube(Mesh(context=2, tensor=2))
    with pytest.raises(ValueError, match="data = 5, and the picture has room for 4"):
        mesh_cube(Mesh(data=5))
    for per_node in (0, 3, 6):
        with pytest.raises(ValueError, match=rf"8 ranks of .*, {per_node} per node"):
            mesh_cube(SMALL, per_node)
