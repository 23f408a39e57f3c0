"""Each row is on one rank, and what ranks share has one colour."""

import pytest

from course_lib.views.palette import QUIET, RANKS
from course_lib.views.replicas import replicas
from tests.views.reading import boxes, words


@pytest.mark.parametrize(("ranks", "rows"), [(1, 2), (3, 3), (4, 12), (8, 16)])
def test_rows_are_shared_and_the_rest_is_one_for_each_rank(ranks, rows):
    shown = [box.word for box in boxes(replicas(ranks, rows))]
    assert [word for word in shown if word.startswith("row ")] == [f"row {k}" for k in range(rows)]
    assert shown.count("the model") == shown.count("update") == ranks
    assert shown.count("average") == 1
    assert sum(word.startswith("of rows") for word in shown) == ranks


def test_words_say_who_has_which_rows():
    text = replicas(4, 12).text
    assert "4 ranks: a copy of the model on each, 3 of 12 rows" in text
    assert "   1   3 to 5   its own  the same" in text
    assert "one all-reduce" in words(replicas())
    assert QUIET.color not in {fill.color for fill in RANKS}


@pytest.mark.parametrize(
    ("ranks", "rows", "said"),
    [(9, 18, "1 to 8 ranks, not 9"), (4, 10, "10 rows cannot be shared equally by 4 ranks")],
)
def test_what_cannot_be_drawn_is_refused(ranks, rows, said):
    with pytest.raises(ValueError, match=said):
        replicas(ranks, rows)
