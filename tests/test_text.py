"""Joined words, counted things and tables."""

import re

import pytest

from course_lib.text import counted, listed, sentences, table, unbroken


@pytest.mark.parametrize(
    ("items", "text"), [([1], "1"), ([1, 2], "1 and 2"), (iter("abc"), "a, b and c")]
)
def test_items_are_joined_as_in_a_sentence(items, text):
    assert listed(items) == text


def test_nothing_cannot_be_listed():
    with pytest.raises(ValueError, match="not enough values"):
        listed([])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((1, "piece"), "1 piece"),
        ((0, "piece"), "0 pieces"),
        ((2000, "piece"), "2000 pieces"),
        ((3, "microbatch"), "3 microbatches"),
        ((3, "copy", "copies"), "3 copies"),
    ],
)
def test_nouns_go_with_their_number(arguments, text):
    assert counted(*arguments) == text


def test_a_table_has_its_numbers_flush_right_and_no_space_at_the_end():
    rows = [["", "rank 0", "all"], ["sent", 5, "1,234"], ["by send", "", ""]]
    assert table(rows).split("\n") == [
        "         rank 0    all",
        "sent          5  1,234",
        "by send",
    ]


def test_columns_of_words_can_be_flush_left():
    assert table([["a", "bc", 1], ["de", "f", 10]], left=2) == "a   bc   1\nde  f   10"


def test_rows_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        table([["a", "b"], ["c"]])


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((), ""),
        (("", "one", ""), "one"),
        (("one", "then two", "three"), "one. Then two. Three"),
        (("are they?", "they are.", "`x` too"), "are they? They are. `x` too"),
    ],
)
def test_sentences_stand_one_behind_the_other(parts, text):
    assert sentences(*parts) == text


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("of ZeRO-2, and", ["ZeRO-2,"]),
        ("even 0-dimensional", ["0-dimensional"]),
        ("sends 2(n-1)/n of", ["2(n-1)/n"]),
        ("an all-reduce of n - 1 chunks", []),
        ("<a href='x-1'>x-1</a>", []),
        (f"{'a' * 20}-1 is long", []),
    ],
)
def test_no_line_ends_behind_a_hyphen_before_a_digit(text, kept):
    span = '<span style="white-space:nowrap">'
    assert re.findall(f"{span}(.*?)</span>", unbroken(text)) == kept
    assert re.sub(f"{span}(.*?)</span>", r"\1", unbroken(text)) == text
