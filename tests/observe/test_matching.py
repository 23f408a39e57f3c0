"""Which send belongs to which recv, and where collectives do not line up."""

import pytest

from course_lib.observe import match
from tests.observe.events import event


def ends(pairs):
    return [((s.rank, s.n), (r.rank, r.n)) for s, r in pairs]


def test_messages_pair_up_in_order():
    matching = match(
        [
            event(0, 0, "send", peer=1),
            event(0, 1, "send", peer=1, nbytes=4),
            event(1, 0, "recv", peer=0),
            event(1, 1, "recv", peer=0),
        ]
    )
    # By order only: torch does not look at sizes either.
    assert ends(matching.pairs) == [((0, 0), (1, 0)), ((0, 1), (1, 1))]
    assert matching.unmatched_sends == matching.unmatched_recvs == []


@pytest.mark.parametrize(
    "other", [{"tag": 1}, {"group": "1"}, {"peer": 2}], ids=["tag", "group", "peer"]
)
def test_what_keeps_messages_apart(other):
    send = event(0, 0, "send", world=3, peer=1)
    recv = event(1, 0, "recv", world=3, **({"peer": 0} | other))
    matching = match([send, recv])
    assert matching.pairs == []
    assert matching.unmatched_sends == [send]
    assert matching.unmatched_recvs == [recv]


def test_tags_may_overtake():
    matching = match(
        [
            event(0, 0, "send", peer=1, tag=5),
            event(0, 1, "send", peer=1, tag=6),
            event(1, 0, "recv", peer=0, tag=6),
            event(1, 1, "recv", peer=0, tag=5),
        ]
    )
    assert sorted(ends(matching.pairs)) == [((0, 0), (1, 1)), ((0, 1), (1, 0))]


def test_a_recv_from_any_rank_takes_what_the_others_leave():
    matching = match(
        [
            event(0, 0, "send", world=3, peer=2),
            event(1, 0, "send", world=3, peer=2),
            event(2, 0, "recv", world=3, peer=None),
            event(2, 1, "recv", world=3, peer=0),
            event(2, 2, "recv", world=3, peer=None),
        ]
    )
    assert sorted(ends(matching.pairs)) == [((0, 0), (2, 1)), ((1, 0), (2, 0))]
    assert [recv.n for recv in matching.unmatched_recvs] == [2]


def test_both_send_first():
    sends = [event(0, 0, "send", peer=1), event(1, 0, "send", peer=0)]
    assert match(sends).unmatched_sends == sends


# ---------------------------------------------------------------------------------------------


def both(ours: list[tuple], theirs: list[tuple]):
    events = [event(0, n, op, **fields) for n, (op, fields) in enumerate(ours)]
    events += [event(1, n, op, **fields) for n, (op, fields) in enumerate(theirs)]
    (group,) = match(events).groups
    return group


REDUCE = ("all_reduce", {"reduce_op": "sum"})


def test_collectives_that_line_up():
    group = both([REDUCE, ("barrier", {})], [REDUCE, ("barrier", {})])
    assert group.divergence is None
    assert [call.op for call in group.calls[1]] == ["all_reduce", "barrier"]


@pytest.mark.parametrize(
    ("what", "ours", "theirs"),
    [
        ("operation", REDUCE, ("broadcast", {"peer": 0})),
        ("root", ("broadcast", {"peer": 0}), ("broadcast", {"peer": 1})),
        ("reduction", REDUCE, ("all_reduce", {"reduce_op": "max"})),
        ("dtype", REDUCE, ("all_reduce", {"reduce_op": "sum", "dtype": "int32"})),
        ("size", REDUCE, ("all_reduce", {"reduce_op": "sum", "nbytes": 24, "shapes": ((6,),)})),
    ],
)
def test_the_first_difference_is_found(what, ours, theirs):
    group = both([REDUCE, ours, REDUCE], [REDUCE, theirs, ("barrier", {})])
    assert (group.divergence.index, group.divergence.what) == (1, what)
    assert {rank: call.n for rank, call in group.divergence.calls.items()} == {0: 1, 1: 1}


def test_swapped_calls_of_equal_shape_are_seen():
    gather = ("all_gather", {})
    group = both([REDUCE, gather], [gather, REDUCE])
    assert (group.divergence.index, group.divergence.what) == (0, "operation")


def test_a_rank_without_the_call():
    group = both([REDUCE, REDUCE], [REDUCE])
    assert (group.divergence.index, group.divergence.what) == (1, "missing")
    assert list(group.divergence.calls) == [0]


def test_unequal_parts_are_no_difference():
    ours = ("all_to_all", {"nbytes": 12, "splits": (4, 8)})
    theirs = ("all_to_all", {"nbytes": 20, "splits": (8, 12)})
    assert both([ours], [theirs]).divergence is None


def test_groups_are_counted_by_themselves():
    events = [event(rank, 0, "all_reduce", world=3) for rank in range(3)]
    events += [event(rank, 1, "barrier", ranks=(0, 2), group="1") for rank in (0, 2)]
    matching = match(events)
    assert [(g.group, g.ranks, g.divergence) for g in matching.groups] == [
        ("0", (0, 1, 2), None),
        ("1", (0, 2), None),
    ]
