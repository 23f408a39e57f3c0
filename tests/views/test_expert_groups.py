"""Rows are the groups between which tokens travel, columns the ranks with the same experts."""

import pytest

from course_lib.techniques.mesh import Mesh
from course_lib.views.expert_groups import expert_groups
from tests.views.reading import boxes


def test_a_column_has_the_same_experts_and_a_row_has_all():
    found = {}
    for box in boxes(expert_groups(Mesh(data=4, expert=2), 4), "expert"):
        expert, rank = (int(word) for word in box.hint.split() if word.isdigit())
        found.setdefault(rank, []).append(expert)
    assert found == {0: [0, 1], 1: [2, 3], 2: [0, 1], 3: [2, 3]}


def test_words_name_both_kinds_of_groups():
    text = expert_groups(Mesh(data=4, expert=2), 4).text
    assert text.splitlines()[0] == "4 ranks, 4 experts in 2 copies"
    assert "tokens go to their experts: ranks 0 and 1; 2 and 3" in text
    assert "are added up: ranks 0 and 2; 1 and 3" in text
    assert "gradients over all 4" in text


@pytest.mark.parametrize(
    ("mesh", "experts", "message"),
    [
        (Mesh(data=2, tensor=2), 4, "2 ranks of one axis, and .* has more"),
        (Mesh(data=4, expert=4), 6, "6 experts cannot be spread evenly over 4 ranks"),
        (Mesh(data=8), 4, r"8 x 1 ranks: there is room for 8 and 4 x 4"),
    ],
)
def test_what_has_no_room_is_refused(mesh, experts, message):
    with pytest.raises(ValueError, match=message):
        expert_groups(mesh, experts)
