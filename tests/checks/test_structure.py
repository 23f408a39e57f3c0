"""Gates on counted things: what they let pass, what they stop, and both numbers in the message."""

from types import SimpleNamespace

import pytest

from course_lib.checks import structure
from course_lib.checks.exercise import Observation
from course_lib.observe import Frame, RankWarning
from course_lib.techniques.collectives import ring_all_reduce


def observed(matrix=((0, 8), (8, 0)), messages=(1, 1)) -> Observation:
    traffic = SimpleNamespace(
        sent=[sum(row) for row in matrix],
        received=[sum(column) for column in zip(*matrix, strict=True)],
        matrix=matrix,
        messages=messages,
    )
    return Observation([], SimpleNamespace(traffic=lambda: traffic))


def calls(*operations, file="cell") -> SimpleNamespace:
    events = [
        SimpleNamespace(op=op, rank=rank, where=(Frame(file, 3, "answer"),))
        for rank, op in enumerate(operations)
    ]
    return SimpleNamespace(events=events)


@pytest.mark.parametrize(
    ("matrix", "says", "got"),
    [
        (((0, 0), (0, 0)), "this rank sent nothing: the rule", "0 bytes sent"),
        (((0, 4), (0, 0)), "sent too little to be doing its part: the rule", "4 bytes sent"),
        (((0, 20), (0, 0)), "sent too much: the rule. Whole tensors?", "20 bytes sent"),
    ],
)
def test_bytes(matrix, says, got):
    finding = structure.sent(observed(matrix), 0, 8, 16, "the rule", "Whole tensors?")
    assert finding.likely.startswith("the result is right, but ")
    assert says in finding.likely
    assert (finding.expected, finding.got, finding.rank) == ("8 to 16 bytes sent", got, 0)


@pytest.mark.parametrize("count", [8, 12, 16])
def test_bytes_within_the_bounds_pass(count):
    matrix = ((0, count), (0, 0))
    assert structure.sent(observed(matrix), 0, 8, 16, "the rule") is None
    assert structure.received(observed(matrix), 1, 8, 16, "the rule") is None


def test_bytes_received_are_counted_apart():
    finding = structure.received(observed(((0, 8), (0, 0))), 0, 8, 8, "the rule")
    assert (finding.expected, finding.got) == ("8 bytes received", "0 bytes received")


def test_peers():
    matrix = ((0, 8, 4), (0, 0, 0), (0, 0, 0))
    assert structure.peers(observed(matrix), 0, {1, 2}, "a rule") is None
    finding = structure.peers(observed(matrix), 0, {1}, "a rule")
    assert finding.expected == "sends only to rank 1"
    assert finding.got == "rank 0 sent 4 bytes to rank 2"


def test_messages():
    assert structure.messages(observed(messages=(3, 1)), 0, 3, "a rule") is None
    assert "too many messages: a rule" in structure.messages(observed(), 0, 0, "a rule").likely
    assert "too few messages: a rule" in structure.messages(observed(), 0, 2, "a rule").likely


def test_forbidden_operations():
    allowed = frozenset({"send", "recv"})
    assert structure.forbidden(allowed, calls("send", "recv", "barrier")) is None
    assert structure.forbidden(None, calls("all_reduce")) is None
    finding = structure.forbidden(allowed, calls("send", "all_reduce"))
    assert finding.rank == 1
    assert finding.likely == (
        "your ranks ran all_reduce (cell, line 3), and this exercise is about doing without it: "
        "use send and recv"
    )
    assert "needs no communication" in structure.forbidden(frozenset(), calls("send")).likely


def test_the_courses_own_answer():
    ours = ring_all_reduce.__code__.co_filename  # wherever the techniques lie
    assert structure.course_answer(calls("send")) is None
    assert "course keeps its own answer" in structure.course_answer(calls("send", file=ours)).likely


def test_warnings():
    assert structure.first_warning([]) is None
    warning = RankWarning(2, "never_waited", "nobody waited for this isend", ())
    assert structure.first_warning([warning]).likely == "nobody waited for this isend"
    assert structure.first_warning([warning]).rank == 2


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([2], "rank 2"), ([1, 0], "ranks 0 and 1"), ([3, 0, 1], "ranks 0, 1 and 3")],
)
def test_ranks_in_words(numbers, text):
    assert structure.ranks(numbers) == text
