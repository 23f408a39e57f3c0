"""The parts of a parameter server that communicate nothing: keys, placement, clocks, filters."""

import random
from itertools import pairwise

import pytest
import torch
from torch import nn

from course_lib.techniques.parameter_server import (
    EVENTUAL,
    SEQUENTIAL,
    HashRing,
    KeyRange,
    Layout,
    Progress,
    RangeClocks,
    SignificantlyModified,
    by_hash,
    by_range,
    by_tensor,
    imbalance,
)
from course_lib.techniques.parameter_server.filters import runs
from course_lib.techniques.parameter_server.key_ranges import count, overlaps

# ------------------------------------------------------------------------------------------------
# Keys
# ------------------------------------------------------------------------------------------------


def test_a_tied_parameter_has_one_range_and_a_transposed_one_is_written() -> None:
    one = nn.Parameter(torch.arange(6.0).view(2, 3).t())  # memory in another order
    two = nn.Parameter(torch.zeros(2))
    layout = Layout([one, two, one])
    assert layout.ranges == [KeyRange(0, 6), KeyRange(6, 8)]
    assert layout.values([KeyRange(1, 3), KeyRange(5, 7)]).tolist() == [3.0, 1.0, 5.0, 0.0]
    layout.write([KeyRange(1, 3), KeyRange(5, 7)], torch.tensor([30.0, 10.0, 50.0, 60.0]))
    assert one.tolist() == [[0.0, 30.0], [10.0, 4.0], [2.0, 50.0]]
    assert two.tolist() == [60.0, 0.0]


def test_gradients_are_read_by_key_and_missing_ones_are_zeros() -> None:
    one, two = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2))
    layout = Layout([one, two])
    two.grad = torch.tensor([1.0, 2.0])
    assert layout.with_gradient() == [KeyRange(3, 5)]
    assert layout.gradients([KeyRange(1, 4)]).tolist() == [0.0, 0.0, 1.0]


# ------------------------------------------------------------------------------------------------
# Placement
# ------------------------------------------------------------------------------------------------

SIZES = (1_000_003, 64, 64 * 256, 256, 256 * 64, 7)  # a huge embedding first
EDGES = [sum(SIZES[:i]) for i in range(len(SIZES) + 1)]
TENSORS = [KeyRange(a, b) for a, b in pairwise(EDGES)]
TOTAL = EDGES[-1]


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
def test_every_key_has_one_owner(servers: int) -> None:
    for placement in (
        by_tensor(TENSORS, servers),
        by_range(TOTAL, servers),
        by_hash(TOTAL, HashRing(range(servers)), block=1000),
    ):
        assert len(placement) == servers
        ranges = sorted(keys for owned in placement for keys in owned)
        assert [keys.start for keys in ranges[1:]] == [keys.stop for keys in ranges[:-1]]
        assert (ranges[0].start, ranges[-1].stop) == (0, TOTAL)


def test_only_cutting_through_tensors_balances_a_huge_embedding() -> None:
    assert imbalance(by_tensor(TENSORS, 4)) > 3.8
    assert imbalance(by_range(TOTAL, 4)) < 1.00001
    assert imbalance(by_hash(TOTAL, HashRing(range(4)), block=1000)) < 1.25
    sizes = [count(owned) for owned in by_range(TOTAL, 7)]
    assert max(sizes) - min(sizes) == 1


def test_more_servers_than_keys() -> None:
    assert by_range(2, 3) == ((), (KeyRange(0, 1),), (KeyRange(1, 2),))


def moved(before, after) -> int:
    """Keys whose owner has changed."""
    stayed = sum(count(overlaps(old, new)) for old, new in zip(before, after, strict=False))
    return TOTAL - stayed


@pytest.mark.parametrize("servers", [2, 4, 9])
def test_a_server_more_takes_over_about_its_share_and_nothing_else_moves(servers: int) -> None:
    few, many = (by_hash(TOTAL, HashRing(range(n)), block=100) for n in (servers, servers + 1))
    share = moved(few, many) / TOTAL
    assert 0.7 / (servers + 1) < share < 1.3 / (servers + 1)
    assert moved(few, many) == count(many[servers])  # all that moved went to the new one
    everything = moved(by_range(TOTAL, servers), by_range(TOTAL, servers + 1)) / TOTAL
    assert everything > 0.45 > share  # ranges shift along the whole line


def test_virtual_servers_even_out() -> None:
    def spread(points: int) -> float:
        return imbalance(by_hash(TOTAL, HashRing(range(8), points), block=100))

    assert spread(1) > 1.5
    assert spread(256) < 1.2


def test_placement_is_the_same_in_every_process() -> None:
    # Values, not only equality in one process: Python's own hash would differ between ranks.
    assert [HashRing(range(3)).owner(key) for key in range(8)] == OWNERS


OWNERS = [0, 1, 0, 1, 2, 1, 1, 2]


def test_bad_sizes_are_named() -> None:
    for make in (lambda: by_range(5, 0), lambda: by_tensor(TENSORS, 0), lambda: HashRing([])):
        with pytest.raises(ValueError, match="at least 1 server, not 0"):
            make()
    with pytest.raises(ValueError, match="at least 1 point on the ring, not 0"):
        HashRing([0], 0)
    with pytest.raises(ValueError, match="a block needs at least 1 key, not 0"):
        by_hash(5, HashRing([0]), 0)


# ------------------------------------------------------------------------------------------------
# Consistency
# ------------------------------------------------------------------------------------------------


def random_run(rng: random.Random, bound: float) -> int:
    """Workers start and finish tasks in a random order; the largest lead at a start."""
    workers = rng.randint(1, 6)
    progress, running, most = Progress(range(workers), bound), set(), 0
    weights = [10 ** rng.uniform(0, 2) for _ in range(workers)]  # some are far slower
    for _ in range(200):
        worker = rng.choices(range(workers), weights)[0]
        if worker in running:
            running.remove(worker)
            progress.finish(worker)
        elif progress.may_start(worker):
            running.add(worker)
            most = max(most, progress.clocks[worker] - min(progress.clocks.values()))
        else:
            assert progress.clocks[worker] - min(progress.clocks.values()) > bound
    # It cannot come to a standstill: the slowest may always go on.
    assert any(w in running or progress.may_start(w) for w in range(workers))
    return most


def test_bounded_delay_never_leads_by_more_than_its_bound_and_eventual_does() -> None:
    rng = random.Random(0)
    reached = 0
    for _ in range(200):
        bound = rng.choice([SEQUENTIAL, 1, 2, 3, 5, 8])
        most = random_run(rng, bound)
        assert most <= bound
        reached += most == bound
    assert reached > 150  # it does not hold anyone back without need
    assert sum(random_run(rng, EVENTUAL) > 8 for _ in range(200)) > 50


def test_nobody_waits_for_a_worker_that_is_gone() -> None:
    progress = Progress([0, 1], 1)
    progress.finish(0)
    progress.finish(0)
    assert (progress.lead(0), progress.may_start(0), progress.may_start(1)) == (2, False, True)
    progress.remove(1)
    assert progress.may_start(0)
    with pytest.raises(ValueError, match=r"0 \(sequential\) or more, not -1"):
        Progress([0], -1)


# ------------------------------------------------------------------------------------------------
# Vector clocks
# ------------------------------------------------------------------------------------------------


def test_an_update_cuts_a_range_into_three_at_most_and_equal_neighbours_join() -> None:
    clocks = RangeClocks([KeyRange(0, 100)], [0, 1])
    clocks.update([KeyRange(30, 50)], 1, 4)
    assert [keys for keys, _ in clocks.parts] == [
        KeyRange(0, 30),
        KeyRange(30, 50),
        KeyRange(50, 100),
    ]
    assert clocks.has([KeyRange(30, 50)], 1, 4)
    assert not clocks.has([KeyRange(30, 51)], 1, 4)
    clocks.update([KeyRange(0, 30)], 1, 4)
    clocks.update([KeyRange(50, 100)], 1, 4)
    assert clocks.parts == [(KeyRange(0, 100), {0: -1, 1: 4})]


PARTS = [KeyRange(0, 20), KeyRange(30, 40)]


def test_range_clocks_equal_a_clock_for_every_key() -> None:
    rng = random.Random(1)
    for _ in range(30):
        clocks = RangeClocks(PARTS, range(3))
        keys = [*range(20), *range(30, 40)]
        single = {key: dict.fromkeys(range(3), -1) for key in keys}
        for task in range(25):
            worker, edges = rng.randrange(3), sorted(rng.sample(range(45), 2 * rng.randint(1, 3)))
            pushed = [KeyRange(*pair) for pair in zip(edges[::2], edges[1::2], strict=True)]
            assert clocks.has(pushed, worker, task) == (not overlaps(pushed, PARTS))
            before = len(clocks.parts)
            clocks.update(pushed, worker, task)
            assert len(clocks.parts) <= before + 2 * len(pushed)
            assert clocks.has(pushed, worker, task)
            for key in keys:
                if any(part.start <= key < part.stop for part in pushed):
                    single[key][worker] = task
        for part, clock in clocks.parts:
            assert all(single[key] == clock for key in range(part.start, part.stop))
        assert count(part for part, _ in clocks.parts) == 30


# ------------------------------------------------------------------------------------------------
# Filter
# ------------------------------------------------------------------------------------------------


def test_what_is_not_sent_is_kept_and_comes_later() -> None:
    keep = SignificantlyModified(6, 0.05)
    ranges = [KeyRange(0, 2), KeyRange(4, 6)]
    passed, values = keep(ranges, torch.tensor([0.30, 0.04, -0.01, 0.20]))
    assert passed == [KeyRange(0, 1), KeyRange(5, 6)]
    assert torch.allclose(values, torch.tensor([0.30, 0.20]))
    passed, values = keep(ranges, torch.tensor([0.01, 0.03, -0.05, 0.00]))
    assert passed == [KeyRange(1, 2), KeyRange(4, 5)]
    assert torch.allclose(values, torch.tensor([0.07, -0.06]))
    assert torch.allclose(keep.unsent, torch.tensor([0.01, 0, 0, 0, 0, 0]))
    with pytest.raises(ValueError, match="or more, not -1"):
        SignificantlyModified(6, -1)


def test_runs() -> None:
    assert runs(torch.tensor([True, True, False, True]), 10) == [KeyRange(10, 12), KeyRange(13, 14)]
    assert runs(torch.tensor([False, False])) == []
