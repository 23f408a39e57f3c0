"""A contract in words, as it stands under the statement of its exercise."""

import re

import pytest

from course_lib.checks.contract import Contract, Waits
from course_lib.checks.registry import all_exercises


@pytest.mark.parametrize(
    ("contract", "text"),
    [
        (Contract(), ""),
        (Contract(allowed=frozenset()), ""),
        (
            Contract(allowed=frozenset(), sends="your function sends nothing"),
            "Your function sends nothing.",
        ),
        (
            Contract(in_place="tensor", groups=True, allowed=frozenset({"send", "recv"})),
            "In place: `tensor` itself holds the result and is returned. "
            "Only send and recv, blocking or not, may be used.",
        ),
        (
            Contract(in_place="values", returned="each push's staleness"),
            "In place: `values` itself holds the result, and each push's staleness is returned.",
        ),
        (Contract(gives="the result is flat"), "The result is flat."),
        (
            Contract(waits=(Waits(op="all_reduce", begins="backward", outlasts="backward"),)),
            "Each all_reduce begins in backward; no all_reduce is waited for inside backward.",
        ),
        (Contract(sends="to the ranks r XOR 1, 2, 4, ..."), "To the ranks r XOR 1, 2, 4, ..."),
    ],
)
def test_the_words_of_a_contract(contract, text):
    assert contract.text == text
    assert contract.freedom == ""


@pytest.mark.parametrize(
    ("contract", "arguments"),
    [
        (Contract(), ""),
        (Contract(takes="p and m from 1 on"), "p and m from 1 on."),
        (Contract(takes="x_part (B, K/t)", groups=True), "x_part (B, K/t); any group of ranks."),
        (
            Contract(transposed=True, dtypes=("float32", "int64")),
            "Also transposed; float32 and int64.",
        ),
    ],
)
def test_what_may_come_is_a_list(contract, arguments):
    assert contract.arguments == arguments
    assert contract.text == ""


def test_what_is_free_is_said_apart_from_what_is_enforced():
    contract = Contract(changes=("model", "unsent"), any_order=True, holds="nothing is held")
    assert contract.text == "Nothing is held."
    assert contract.freedom == (
        "Your function may change `model` and `unsent`. The order of what it returns is free."
    )


def test_where_ranks_have_to_agree_the_contract_warns_of_hashes():
    assert "hash() of a text" in Contract(agree=True).text


@pytest.mark.parametrize("exercise", all_exercises().values(), ids=lambda e: e.name)
def test_every_contract_reads_as_sentences(exercise):
    contract = exercise.contract
    assert contract.text or contract.allowed == frozenset(), "nothing is promised"
    for text in filter(None, (contract.arguments, contract.text, contract.freedom)):
        assert text.endswith(".")
        assert not re.search(r"[^.]\.\.(?!\.)|, \.$|  ", text)
