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
        count = 1 if matrix.split == "whole" or ranks == 1 else ranks * matrix.groups
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
    columns = tensor_parallel_layer("column-parallel linear", 2)
    assert "only backward sends, an all-reduce of X's gradient" in columns.text
    assert "backward" not in tensor_parallel_layer("row-parallel linear", 2).text


def test_operators_stand_where_ranks_speak():
    def shown(layer, ranks=2):
        return [word for word in words(tensor_parallel_layer(layer, ranks)) if word in ("f", "g")]

    assert [shown(layer) for layer in LAYERS] == [["f"], ["g"], ["f", "g"], ["f", "g"], ["g"]]
    assert shown("MLP", 1) == []


def test_a_rank_has_the_same_heads_of_queries_keys_and_values():
    view = tensor_parallel_layer("attention", 2)
    assert [part.word for part in boxes(view, "Q, K, V")] == list("010101")
    assert "16 x 24, a block of columns of each of Q, K, V" in view.text


def test_where_ranks_have_different_parts_the_most_is_said_to_be_so():
    for layer, said in (("attention", "at most 384 of 1024"), ("MLP", "at most 704 of 2048")):
        assert said in tensor_parallel_layer(layer, 3).text
    assert "at most" not in tensor_parallel_layer("MLP", 3, hidden=24).text


def test_the_key_names_only_colours_of_the_picture():
    assert "on all ranks" not in keys(tensor_parallel_layer("row-parallel linear", 2))
    alone = tensor_parallel_layer("MLP", 1)
    assert keys(alone) == ["rank 0"]
    assert RANKS[0].color in alone.svg()


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
