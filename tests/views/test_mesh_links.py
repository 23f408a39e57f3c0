"""The groups of a rank are those of the mesh, and where they lie is that of the nodes."""

import pytest

from course_lib.techniques.mesh import Mesh
from course_lib.views.mesh_links import LARGEST, chosen_mesh, mesh_explorer, mesh_links
from tests.views.reading import Moved, boxes, keys, words

MESH = Mesh(pipeline=2, data=2, tensor=4)
LONG = Mesh(data=2, context=4, tensor=2)


@pytest.mark.parametrize(("mesh", "rank"), [(MESH, 0), (MESH, 6), (MESH, 15), (LONG, 6)])
def test_colours_are_the_groups(mesh, rank):
    fills: dict[str, set[int]] = {}
    for number, box in enumerate(boxes(mesh_links(mesh, 8, rank), "rank")):
        assert box.hint.startswith(f"rank {number}: ")
        fills.setdefault(box.fill, set()).add(number)
    groups = {frozenset(mesh.group(axis, rank)) - {rank} for axis in mesh.order} - {frozenset()}
    rest = set(range(16)) - {rank} - set().union(*groups)
    assert {frozenset(found) for found in fills.values()} == {
        *groups, frozenset({rank}), frozenset(rest),
    }  # fmt: skip


def test_words_say_who_where_and_what():
    assert mesh_links(MESH, 4, 5).text.splitlines() == [
        "pipeline 2 x data 2 x tensor 4: rank 5 and whom it talks to",
        "tensor: ranks 4, 5, 6 and 7, inside one node; activations, in every layer",
        "data: ranks 1 and 5, over 2 nodes; gradients, once per step",
        "pipeline: ranks 5 and 13, over 2 nodes; activations between neighbours, once per"
        " microbatch",
    ]
    assert keys(mesh_links(MESH, 4, 5))[-1] == "in none of its groups"
    assert keys(mesh_links(Mesh(tensor=4), 4, 1))[-1] == "rank 1"
    assert "p1 d1 t3: pipeline 1, data 1, tensor 3" in words(mesh_links(MESH, 4))
    assert words(mesh_links(MESH, 4)).count("node 3") == 1


def test_experts_are_named_by_their_own_group_and_not_by_the_data_axis_that_holds_it():
    view = chosen_mesh(1, 4, 2, expert=2)
    hints = [box.hint for box in boxes(view, "rank")]
    told = [hint.splitlines()[-1] for hint in hints if "group of" in hint]
    assert told == [
        f"in the {axis} group of rank 0" for axis in ("tensor", "expert", "data", "data")
    ]
    assert "expert: ranks 0 and 2, inside one node; tokens" in view.text


def test_the_innermost_axis_moves_from_one_neighbour_to_the_next():
    assert "pipeline: ranks 0 and 1, inside" in chosen_mesh(innermost="pipeline", per_node=2).text
    assert "tensor: ranks 0, 2, 4 and 6, over 4" in chosen_mesh(
        innermost="pipeline", per_node=2
    ).text  # fmt: skip


def test_an_axis_of_one_talks_to_nobody():
    assert "data: nobody" in chosen_mesh(data=1).text


def test_a_rank_that_is_not_there_stands_for_the_last():
    assert chosen_mesh(1, 1, 2, rank=9).text == chosen_mesh(1, 1, 2, rank=1).text


def test_what_cannot_be_drawn_is_said():
    with pytest.raises(ValueError, match=f"{LARGEST} ranks, and .* has 128"):
        mesh_links(Mesh(data=128))
    with pytest.raises(ValueError, match="1 to 8 ranks, not 9"):
        mesh_links(MESH, 9)
    shown = Moved(mesh_explorer())(pipeline=8, data=8)
    assert "has 256" in shown.text
