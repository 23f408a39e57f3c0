"""Limits on counted things: what they let pass, what they stop, and both numbers in the message."""

from types import SimpleNamespace

import pytest

from course_lib.checks import traffic_limits
from course_lib.checks.exercise import Observation


def observed(matrix=((0, 8), (8, 0)), messages=(1, 1)) -> Observation:
    traffic = SimpleNamespace(
        sent=[sum(row) for row in matrix],
        received=[sum(column) for column in zip(*matrix, strict=True)],
        matrix=matrix,
        messages=messages,
    )
    return Observation([], SimpleNamespace(traffic=lambda: traffic))


@pytest.mark.parametrize(
    ("matrix", "says", "got"),
    [
        (((0, 0), (0, 0)), "this rank sent nothing: the rule", "0 bytes sent"),
        (((0, 4), (0, 0)), "sent too little to be doing its part: the rule", "4 bytes sent"),
        (((0, 20), (0, 0)), "sent too much: the rule. Whole tensors?", "20 bytes sent"),
    ],
)
def test_bytes(matrix, says, got):
    finding = traffic_limits.sent(observed(matrix), 0, 8, 16, "the rule", "Whole tensors?")
    assert finding.likely.startswith("the result is right, but ")
    assert says in finding.likely
    assert (finding.expected, finding.got, finding.rank) == ("8 to 16 bytes sent", got, 0)


@pytest.mark.parametrize("count", [8, 12, 16])
def test_bytes_within_the_bounds_pass(count):
    matrix = ((0, count), (0, 0))
    assert traffic_limits.sent(observed(matrix), 0, 8, 16, "the rule") is None
    assert traffic_limits.received(observed(matrix), 1, 8, 16, "the rule") is None


def test_bytes_received_are_counted_apart():
    finding = traffic_limits.received(observed(((0, 8), (0, 0))), 0, 8, 8, "the rule")
    assert (finding.expected, finding.got) == ("8 bytes received", "0 bytes received")


def test_peers():
    matrix = ((0, 8, 4), (0, 0, 0), (0, 0, 0))
    assert traffic_limits.peers(observed(matrix), 0, {1, 2}, "a rule") is None
    finding = traffic_limits.peers(observed(matrix), 0, {1}, "a rule")
    assert finding.expected == "sends only to rank 1"
    assert finding.got == "rank 0 sent 4 bytes to rank 2"


def test_messages():
    assert traffic_limits.messages(observed(messages=(3, 1)), 0, 3, "a rule") is None
    assert "too many messages: a rule" in traffic_limits.messages(observed(), 0, 0, "a rule").likely
    assert "too few messages: a rule" in traffic_limits.messages(observed(), 0, 2, "a rule").likely


def test_only_too_much_breaks_a_promise_and_can_be_forgiven():
    much, little = observed(((0, 20), (0, 0)), (3, 0)), observed(((0, 4), (0, 0)), (1, 0))

    def findings(observation: Observation) -> list:
        return [
            traffic_limits.sent(observation, 0, 8, 16, "a rule"),
            traffic_limits.received(observation, 1, 8, 16, "a rule"),
            traffic_limits.messages(observation, 0, 2, "a rule"),
        ]

    assert all(finding.promise for finding in findings(much))
    assert traffic_limits.peers(much, 0, {2}, "a rule").promise
    assert not any(finding.promise for finding in findings(little))
    with traffic_limits.excess_forgiven():
        assert findings(much) == [None, None, None]
        assert traffic_limits.peers(much, 0, {2}, "a rule") is None
        assert all(findings(little))
    assert all(findings(much))


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([2], "rank 2"), ([1, 0], "ranks 0 and 1"), ([3, 0, 1], "ranks 0, 1 and 3")],
)
def test_ranks_in_words(numbers, text):
    assert traffic_limits.ranks(numbers) == text
