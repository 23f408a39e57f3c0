"""Coordinates, groups and placement, and the groups that torch's DeviceMesh makes of them."""

import pytest
import torch.distributed as dist

from course_lib.ranks import collect
from course_lib.techniques.mesh import AXES, Mesh, bytes_by_link, nodes_spanned


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 2, 2, 2), (3, 1, 5, 2), (2, 3, 1, 4)])
@pytest.mark.parametrize("order", [AXES, ("tensor", "pipeline", "context", "data")])
def test_coordinates_and_ranks_are_each_others_inverse(sizes, order):
    mesh = Mesh(**dict(zip(AXES, sizes, strict=True)), order=order)
    found = [mesh.coordinates(rank) for rank in range(mesh.world_size)]
    assert [mesh.rank(**each) for each in found] == list(range(mesh.world_size))
    assert len({tuple(each.items()) for each in found}) == mesh.world_size


def test_groups_along_each_axis_of_the_picture_above():
    mesh = Mesh(pipeline=2, data=2, tensor=2)
    assert mesh.groups("tensor") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert mesh.groups("data") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert mesh.groups("pipeline") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert mesh.coordinates(6) == {"pipeline": 1, "data": 1, "tensor": 0}


def test_a_context_axis_lies_between_tensor_and_data_and_shares_their_weights():
    mesh = Mesh(data=2, context=2, tensor=2)
    assert mesh.groups("tensor") == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert mesh.groups("context") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert mesh.groups("data_context") == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert str(mesh) == "pipeline 1 x data 2 x context 2 x tensor 2"


def test_without_context_parallelism_a_mesh_has_no_such_axis():
    mesh = Mesh(pipeline=2, data=2, context=1, tensor=2)
    assert mesh == Mesh(pipeline=2, data=2, tensor=2, order=("pipeline", "data", "tensor"))
    assert mesh.order == ("pipeline", "data", "tensor")
    assert mesh.group("context", 5) == [5]
    assert mesh.groups("data_context") == mesh.groups("data")


def test_experts_fold_into_the_data_axis():
    mesh = Mesh(data=4, tensor=2, expert=2)
    assert mesh.world_size == 8
    assert mesh.groups("data") == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert mesh.groups("expert") == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert mesh.groups("expert_data") == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert mesh.coordinates(5) == {"pipeline": 0, "data": 2, "tensor": 1}
    assert str(mesh) == "pipeline 1 x data 4 x tensor 2, expert 2"
    for rank in range(8):
        same_data = set(mesh.group("data", rank))
        assert same_data >= set(mesh.group("expert", rank))
        assert set(mesh.group("expert", rank)) & set(mesh.group("expert_data", rank)) == {rank}
    long = Mesh(data=2, context=2, expert=2)
    assert long.groups("expert") == [[0, 2], [1, 3]]
    assert long.groups("expert_data") == [[0, 1], [2, 3]]
    alone = Mesh(data=4)
    assert alone.groups("expert") == [[0], [1], [2], [3]]
    assert alone.groups("expert_data") == alone.groups("data")


def test_the_device_mesh_has_these_groups():
    mesh = Mesh(pipeline=2, data=1, tensor=3, order=("tensor", "pipeline", "data"))

    def groups_of_this_rank():
        opened = mesh.open()
        return {axis: dist.get_process_group_ranks(opened.get_group(axis)) for axis in mesh.order}

    for rank, found in enumerate(collect(groups_of_this_rank, mesh.world_size)):
        assert found == {axis: mesh.group(axis, rank) for axis in mesh.order}


def test_tensor_groups_stay_inside_a_node_only_if_innermost():
    inner, outer = (
        Mesh(pipeline=2, data=2, tensor=2),
        Mesh(pipeline=2, data=2, tensor=2, order=("tensor", "pipeline", "data")),
    )
    spans = {axis: nodes_spanned(inner, axis, 4) for axis in inner.order}
    assert spans == {"pipeline": 2, "data": 1, "tensor": 1}
    assert nodes_spanned(outer, "tensor", 4) == 2


def test_bytes_are_sorted_by_whether_they_cross_between_nodes():
    matrix = [[0, 5, 7, 0], [1, 0, 0, 0], [0, 0, 0, 2], [0, 10, 0, 0]]
    assert bytes_by_link(matrix, ranks_per_node=2) == (5 + 1 + 2, 7 + 10)
    assert bytes_by_link(matrix, ranks_per_node=4) == (25, 0)


@pytest.mark.parametrize(
    ("attempt", "says"),
    [
        (lambda: Mesh(pipeline=2, data=0, tensor=1), "at least one rank"),
        (lambda: Mesh(order=("data", "tensor")), "each of"),
        (lambda: Mesh(context=2, order=("pipeline", "data", "tensor")), "each of .*context"),
        (lambda: Mesh(context=0), "context = 0, and every axis"),
        (lambda: Mesh(data=6, expert=4), "6 ranks of the data axis .* groups of 4"),
        (lambda: Mesh(data=6, expert=0), "6 ranks of the data axis .* groups of 0"),
        (
            lambda: Mesh(pipeline=2, data=2, tensor=2).check_world_size(6),
            r"needs 8 ranks, and there are 6",
        ),
        (lambda: Mesh(pipeline=2, data=2, tensor=2).coordinates(8), "no rank 8"),
        (
            lambda: Mesh(pipeline=2, data=2, tensor=2).rank(pipeline=2, data=0, tensor=0),
            "no coordinate 2 on the pipeline",
        ),
    ],
)
def test_errors_name_the_numbers(attempt, says):
    with pytest.raises(ValueError, match=says):
        attempt()
