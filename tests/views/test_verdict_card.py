"""Verdicts as cards: the words of the text, the difference marked, and nothing that runs."""

import html
import re
from dataclasses import replace

from course_lib.views.verdict_card import Card, marked, verdict_card


def text_of(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", " ", page))


FAILED = Card(
    "ring_all_reduce",
    "does not pass yet. What was run: 3 ranks",
    passed=False,
    rank=1,
    expected="tensor([6., 60., 600.])",
    got="tensor([6., 20., 600.])",
    likely="a <chunk> is missing",
    hints=("    one\n        indented", "two", "three"),
)


def test_a_passed_exercise_is_one_line():
    page = verdict_card(Card("rank_tensor", "passed. 4 cases on 1 to 4 ranks; it fits."))
    said = " ".join(text_of(page).split())
    assert said == "✓ rank_tensor: passed. 4 cases on 1 to 4 ranks; it fits."


def test_a_failed_one_has_all_of_its_evidence():
    said = " ".join(text_of(verdict_card(FAILED)).split())
    for words in ("✗ ring_all_reduce:", "rank 1", "Likely: a <chunk> is missing", "Hint 3 of 3"):
        assert words in said
    assert verdict_card(FAILED).count("<details") == 3


def test_what_differs_is_marked_on_both_sides():
    expected, got = marked(FAILED.expected, FAILED.got)
    assert re.findall("<b><u>(.*?)</u></b>", expected) == ["60."]
    assert re.findall("<b><u>(.*?)</u></b>", got) == ["20."]
    assert text_of(got).replace(" ", "") == FAILED.got.replace(" ", "")
    assert marked("3", "") == ("3", "")


def test_ranks_stand_below_one_another_with_expected_beside_got():
    ranks = {1: (FAILED.expected, FAILED.got), 2: ("tensor([6., 60.])", "tensor([0., 60.])")}
    said = " ".join(text_of(verdict_card(replace(FAILED, by_rank=ranks))).split())
    assert "expected got rank 1 tensor([6., 60. , 600.]) tensor([6., 20. , 600.]) rank 2" in said
    long = replace(FAILED, expected="1 " * 60, got="2 " * 60)
    said = " ".join(text_of(verdict_card(long)).split())
    assert "rank 1 expected 1 1" in said


def test_words_are_words_and_nothing_else():
    page = verdict_card(Card("a", "<script>alert(1)</script>", got="<img src=x>", passed=False))
    assert "<script" not in page
    assert "<img" not in page
