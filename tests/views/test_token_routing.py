"""Every row goes to the rank of its expert, stands there by expert, and comes home."""

import pytest

from course_lib.views.token_routing import ORDERS, routed, token_routing
from tests.views.reading import boxes

TOKENS = [
    [("a", 2), ("b", 0), ("c", 3), ("d", 0), ("e", 1)],
    [("f", 0), ("g", 1), ("h", 0), ("i", 2), ("j", 0)],
]


def words(stage):
    return ["".join(row.word for row in rows) for rows in stage]


def test_rows_are_sorted_sent_sorted_again_and_brought_back():
    stages = [words(stage) for stage in routed(TOKENS, 4)]
    there = [["abcde", "fghij"], ["bdeac", "fhjgi"], ["bdefhjg", "aci"], ["bdfhjeg", "aic"]]
    assert stages == [*there, *reversed(there)]


def test_an_expert_has_its_rows_in_one_piece_by_rank_and_then_by_token():
    everything = [row for rows in routed(TOKENS, 4)[0] for row in rows]
    for rank, rows in enumerate(routed(TOKENS, 4)[3]):
        mine = [row for row in everything if row.expert // 2 == rank]
        assert rows == sorted(mine, key=lambda row: (row.expert, row.rank, row.place))


def test_the_picture_has_each_row_in_each_order_in_its_experts_colour():
    drawn = boxes(token_routing(TOKENS, 4), "row")
    assert len(drawn) == len(ORDERS) * 10
    colours = {box.hint[-1]: box.fill for box in drawn}
    assert len(set(colours.values())) == 4
    assert all(box.fill == colours[box.hint[-1]] for box in drawn)


def test_words_say_the_same():
    text = token_routing(TOKENS, 4).text
    assert text.startswith("10 tokens to 4 experts on 2 ranks, and home\n")
    assert "all-to-all  by rank    b:0, d:0, e:1, f:0, h:0, j:0, g:1  a:2, c:3, i:2" in text


@pytest.mark.parametrize(
    ("tokens", "experts", "message"),
    [
        ([[]] * 2, 9, "1 to 8 experts on at least one rank, not 9 on 2"),
        ([], 2, "not 2 on 0"),
        ([[]] * 2, 3, "3 experts cannot be spread evenly over 2 ranks"),
        ([[("a", 2)]], 2, "no expert 2 among 2"),
    ],
)
def test_what_cannot_be_routed_is_refused(tokens, experts, message):
    with pytest.raises(ValueError, match=message):
        token_routing(tokens, experts)
