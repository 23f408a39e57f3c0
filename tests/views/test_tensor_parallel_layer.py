"""Every weight lies on exactly one rank, and the words tell the same shapes."""

import pytest

from course_lib.views.palette import RANKS
from course_lib.views.tensor_parallel_layer import (
    LAYERS,
    layer_matrices,
    pieces,
    sharding_explorer,
    tensor_parallel_layer,
)
from tests.views.reading import Moved, boxes, keys, words


@pytest.mark.parametrize("ranks", range(1, 9))
@pytest.mark.parametrize("size", [8, 13, 16])
def test_pieces_are_all_of_it_and_nearly_equal(size, ranks):
    parts = pieces(size, ranks)
    assert sum(parts) == size
    assert max(parts) - min(parts) <= 1


@pytest.mark.parametrize("layer", LAYERS)
def test_shapes_can_be_multiplied_and_sharded_so(layer):
    matrices = layer_matrices(layer, 8)
    for before, weight, after in zip(matrices[0::2], matrices[1::2], matrices[2::2], strict=False):
        if weight.sign == "×":
            assert weight.rows == before.columns
            assert after.rows == before.rows
            # Columns of the left matrix meet rows of the right one, on the same rank
            assert (before.split, weight.split, after.split) in {
                ("whole", "columns", "columns"),
                ("columns", "rows", "sum"),
            }


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_the_parts_of_a_matrix_cover_it_once(layer, ranks):
    view = tensor_parallel_layer(layer, ranks, hidden=12)
    scales = set()
    for matrix in layer_matrices(layer, 12):
        parts = boxes(view, matrix.name)
        count = 1 if matrix.split == "whole" or ranks == 1 else ranks
        assert len(parts) == count
        if matrix.split != "sum" or ranks == 1:
            area = sum((part.wide + 1) * (part.high + 1) for part in parts)
            scales.add(round(area / (matrix.rows * matrix.columns), 1))
    assert max(scales) - min(scales) < 0.3


def test_each_rank_has_its_number_and_its_colour():
    view = tensor_parallel_layer("column-parallel linear", 4)
    assert sorted(filter(str.isdigit, words(view))) == sorted("0123" * 2)
    assert keys(view) == ["rank 0", "rank 1", "rank 2", "rank 3", "on all ranks"]
    assert len({fill.color for fill in RANKS}) == 8


def test_words_are_the_shapes():
    assert tensor_parallel_layer("MLP", 4, hidden=16).text.splitlines() == [
        "MLP on 4 ranks: 512 of 2048 weights on each; an all-reduce adds up Y; backward, one more"
        " for X's gradient",
        "matrix  shape    each rank holds",
        "X       8 x 16   all of it",
        "A       16 x 64  16 x 16, a block of columns",
        "Z       8 x 64   8 x 16, a block of columns",
        "B       64 x 16  16 x 16, a block of rows",
        "Y       8 x 16   8 x 16, a summand",
    ]


def test_one_rank_says_nothing_and_columns_nothing_forward():
    assert "no communication" in tensor_parallel_layer("MLP", 1).text
    assert (
        "forward, nothing is sent; backward, an all-reduce of X's gradient"
        in tensor_parallel_layer("column-parallel linear", 2).text
    )
    assert "backward" not in tensor_parallel_layer("row-parallel linear", 2).text


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: tensor_parallel_layer("MLP", 9), "1 to 8 ranks, not 9"),
        (lambda: tensor_parallel_layer("MLP", 8, hidden=4), "hidden = 4"),
        (lambda: tensor_parallel_layer("softmax", 2), "'softmax'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


def test_all_choices_of_the_widget_can_be_drawn():
    move = Moved(sharding_explorer())
    assert move.offered("ranks") == list(range(1, 9))
    for layer in move.offered("layer"):
        assert boxes(tensor_parallel_layer(layer, 8, min(move.offered("hidden"))))
