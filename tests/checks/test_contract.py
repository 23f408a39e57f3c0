"""A contract in words, as it stands under the statement of its exercise."""

import re

import pytest

from course_lib.checks.contract import Contract, Waits
from course_lib.checks.registry import all_exercises


@pytest.mark.parametrize(
    ("contract", "text"),
    [
        (Contract(), ""),
        (Contract(allowed=frozenset()), "Nothing is sent."),
        (
            Contract(in_place="tensor", groups=True, allowed=frozenset({"send", "recv"})),
            "In place: `tensor` itself holds the result and is returned. Any group of ranks. "
            "Only send and recv.",
        ),
        (
            Contract(in_place="values", returned="each push's staleness"),
            "In place: `values` itself holds the result, and each push's staleness is returned.",
        ),
        (Contract(takes="p and m from 1 on"), "p and m from 1 on."),
        (Contract(takes="x_part (B, K/t)"), "x_part (B, K/t)."),
        (
            Contract(waits=(Waits(op="all_reduce", begins="backward", outlasts="backward"),)),
            "Each all_reduce begins in backward; no all_reduce is waited for inside backward.",
        ),
        (Contract(sends="to the ranks r XOR 1, 2, 4, ..."), "To the ranks r XOR 1, 2, 4, ..."),
    ],
)
def test_the_words_of_a_contract(contract, text):
    assert contract.text == text


@pytest.mark.parametrize("exercise", all_exercises().values(), ids=lambda e: e.name)
def test_every_contract_reads_as_sentences(exercise):
    text = exercise.contract.text
    assert text, "nothing is promised"
    assert text.endswith(".")
    assert not re.search(r"[^.]\.\.(?!\.)|, \.$|  ", text)
