"""Bytes by rank: formulas, exact sums, and agreement with a ring that is played through."""

import pytest

from course_lib.observe import Traffic
from tests.observe.events import event

SIZES = [0, 1, 2, 7, 12, 1003]  # elements; few, none, not divisible


def everyone(op: str, n: int, elements: int, **fields) -> Traffic:
    ranks = [event(r, 0, op, world=n, nbytes=4 * elements, **fields) for r in range(n)]
    return Traffic(n, ranks)


def play_ring_all_reduce(n: int, elements: int) -> list[int]:
    """Bytes that each rank sends, by moving chunk after chunk around a ring."""
    chunks = [elements // n + (k < elements % n) for k in range(n)]
    sent = [0] * n
    for step in range(n - 1):
        for rank in range(n):
            sent[rank] += chunks[(rank - step) % n]  # reduce-scatter: own chunk first
    for step in range(n - 1):
        for rank in range(n):
            sent[rank] += chunks[(rank + 1 - step) % n]  # all-gather: the complete one first
    return [4 * count for count in sent]


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("elements", SIZES)
def test_all_reduce_is_the_ring(n, elements):
    traffic = everyone("all_reduce", n, elements, reduce_op="sum")
    assert traffic.sent == play_ring_all_reduce(n, elements)
    assert sum(traffic.sent) == 2 * (n - 1) * 4 * elements
    assert traffic.messages == [2 * (n - 1)] * n
    if elements % n == 0:
        assert traffic.sent == [2 * (n - 1) * 4 * elements // n] * n


@pytest.mark.parametrize(
    ("op", "peer", "sent", "received"),
    [
        ("all_gather", None, [36, 36, 36, 36], [36, 36, 36, 36]),
        ("reduce_scatter", None, [36, 36, 36, 36], [36, 36, 36, 36]),
        ("broadcast", 1, [0, 12, 12, 12], [12, 0, 12, 12]),  # from 1 to 2 to 3 to 0
        ("reduce", 1, [12, 0, 12, 12], [12, 12, 0, 12]),  # from 2 to 3 to 0 to 1
        ("gather", 1, [12, 0, 12, 12], [0, 36, 0, 0]),
        ("scatter", 1, [0, 36, 0, 0], [12, 0, 12, 12]),
        ("all_to_all", None, [9, 9, 9, 9], [9, 9, 9, 9]),
        ("barrier", None, [0, 0, 0, 0], [0, 0, 0, 0]),
    ],
)
def test_the_table_for_four_ranks(op, peer, sent, received):
    traffic = everyone(op, 4, 3, peer=peer)
    assert (traffic.sent, traffic.received) == (sent, received)
    assert traffic.by_operation == {op: (sent, received)}


def test_unequal_parts():
    splits = [(4, 8, 12), (0, 4, 0), (20, 20, 4)]
    ranks = [event(r, 0, "all_to_all", world=3, splits=splits[r]) for r in range(3)]
    assert Traffic(3, ranks).matrix == [[0, 8, 12], [0, 0, 0], [20, 20, 0]]

    shares = (4, 8, 12)  # every rank passes on all but its neighbour's
    ranks = [event(r, 0, "all_gather", world=3, splits=shares) for r in range(3)]
    assert Traffic(3, ranks).sent == [16, 12, 20]
    ranks = [event(r, 0, "reduce_scatter", world=3, splits=shares) for r in range(3)]
    assert Traffic(3, ranks).sent == [20, 16, 12]


def test_a_message_counts_once_and_for_both():
    traffic = Traffic(
        3,
        [
            event(0, 0, "send", world=3, peer=2, nbytes=40),
            event(0, 1, "send", world=3, peer=1, nbytes=1),
            event(2, 0, "recv", world=3, peer=0, nbytes=40),
            event(1, 0, "recv", world=3, peer=0, nbytes=1),
        ],
    )
    assert traffic.sent == [41, 0, 0]
    assert traffic.received == [0, 1, 40]
    assert traffic.messages == [2, 0, 0]
    assert traffic.matrix == [[0, 1, 40], [0, 0, 0], [0, 0, 0]]


def test_a_group_sends_among_its_members():
    ranks = (3, 1)
    events = [event(r, 0, "all_reduce", ranks=ranks, group="7", nbytes=8) for r in ranks]
    assert Traffic(4, events).matrix == [[0] * 4, [0, 0, 0, 8], [0] * 4, [0, 8, 0, 0]]


def test_parts_of_the_traffic():
    events = [
        event(0, 0, "send", peer=1),
        event(1, 0, "recv", peer=0),
        event(0, 1, "all_reduce", reduce_op="sum"),
        event(1, 1, "all_reduce", reduce_op="sum"),
    ]
    traffic = Traffic(2, events)
    assert traffic.sent == [32, 16]
    assert traffic.point_to_point().sent == [16, 0]
    assert traffic.only("all_reduce").sent == [16, 16]
    assert traffic.only("broadcast").sent == [0, 0]


def test_reads_as_a_table():
    events = [event(0, 0, "send", peer=1, nbytes=1234567), event(1, 0, "recv", peer=0)]
    assert str(Traffic(2, events)) == (
        "bytes, by rank\n"
        "             rank 0     rank 1        all\n"
        "sent      1,234,567          0  1,234,567\n"
        "received          0  1,234,567  1,234,567\n"
        "messages          1          0          1"
    )
