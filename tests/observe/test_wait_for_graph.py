"""Who waits for whom, and whether some of them wait in a circle: then it is a deadlock."""

import pytest

from course_lib.observe import Trace
from course_lib.observe.wait_for_graph import awaited, has_cycle, wait_cycle

from .events import event


@pytest.mark.parametrize(
    ("waits_for", "circle"),
    [
        ({}, False),
        ({0: [1], 1: [2], 2: [3]}, False),
        ({0: [1], 1: [0]}, True),
        ({0: [0], 1: [0]}, True),
        ({0: [1, 2], 1: [3], 2: [0]}, True),
        ({0: [1, 2], 1: [3], 2: [3]}, False),
    ],
)
def test_a_circle_may_lead_through_any_of_those_awaited(waits_for, circle):
    assert has_cycle(waits_for) == circle


def test_the_ranks_of_a_circle_are_named_from_the_first_on():
    assert wait_cycle(1, {0: 1, 1: 2, 2: 1}) == [1, 2]
    assert wait_cycle(0, {0: 1, 1: 2, 2: 1}) == []


def test_a_collective_awaits_those_who_have_not_called_it_and_a_message_its_peer():
    calls = [
        event(0, 0, "all_gather", world=3, done=None),
        event(1, 0, "recv", world=3, peer=0, done=None),
        event(2, 0, "all_gather", world=3, done=None),
    ]
    trace = Trace(3, calls)
    waits_for = {call.rank: awaited(call, trace) for call in calls}
    assert waits_for == {0: [1], 1: [0], 2: [1]}
    assert has_cycle(waits_for)
    assert awaited(event(0, 0, "recv"), trace) == []
