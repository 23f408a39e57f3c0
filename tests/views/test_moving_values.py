"""The blocks of a recorded run are what its ranks sent each other, in rounds that follow."""

import pytest
import torch
import torch.distributed as dist
from torch.profiler import record_function

from course_lib.observe import arrivals
from course_lib.ranks import run_ranks
from course_lib.views.moving_values import motion, moving_values, origins
from course_lib.views.palette import RANKS
from tests.views.reading import boxes, every_box, keys

N = 3


def chain(x):
    """A broadcast from rank to rank."""
    rank = dist.get_rank()
    if rank > 0:
        dist.recv(x, rank - 1)
    if rank + 1 < N:
        dist.send(x, rank + 1)
    return x


def shift(x):
    """Everybody sends to the right at the same time."""
    rank, come = dist.get_rank(), torch.empty_like(x)
    work = dist.isend(x, (rank + 1) % N)
    dist.recv(come, (rank - 1) % N)
    work.wait()
    return come


def gathered(x):
    pieces = [torch.empty_like(x) for _ in range(N)]
    dist.all_gather(pieces, x)
    return torch.cat(pieces)


def summed(x):
    dist.all_reduce(x)
    return x


def scattered_sum(x):
    mine = torch.empty(1)
    dist.reduce_scatter(mine, list(x.repeat(N).chunk(N)))
    return mine


def swapped(x):
    given, taken = torch.cat([x, x, x]) + torch.arange(N), torch.empty(N)
    dist.all_to_all_single(taken, given)
    return taken


def unequal(x):
    """Rank r sends r + 1 numbers to rank 0, and nothing else."""
    rank = dist.get_rank()
    sizes = [rank + 1, 0, 0]
    taken = torch.empty(6 if rank == 0 else 0)
    come = [1, 2, 3] if rank == 0 else [0, 0, 0]
    dist.all_to_all_single(taken, x.repeat(rank + 1), come, sizes)
    return taken


def from_one(x):
    dist.broadcast(x, 1)
    return x


CALLS = {
    "chain": chain,
    "shift": shift,
    "gathered": gathered,
    "summed": summed,
    "scattered sum": scattered_sum,
    "swapped": swapped,
    "unequal": unequal,
    "from one": from_one,
}


def all_of_them():
    ends = {}
    with arrivals() as arrived:
        for name, call in CALLS.items():
            with record_function(name):
                ends[name] = call(torch.tensor([10.0 * dist.get_rank()])).tolist()
    return arrived, ends


@pytest.fixture(scope="module")
def moved():
    results = run_ranks(all_of_them, N)
    arrived = [arrived for arrived, _ in results]
    before = [[10.0 * rank] for rank in range(N)]
    return {
        name: (results.trace.within(name), before, arrived, [ends[name] for _, ends in results])
        for name in CALLS
    }


@pytest.mark.parametrize(
    ("name", "moves"),
    [
        ("chain", [(1, 0, 1, (0,)), (2, 1, 2, (0,))]),
        ("shift", [(1, 2, 0, (20,)), (1, 0, 1, (0,)), (1, 1, 2, (10,))]),
        (
            "gathered",
            [(1, a, b, (10 * a,)) for b in range(N) for a in range(N) if a != b],
        ),
        ("summed", [(1, None, rank, (30,)) for rank in range(N)]),
        ("scattered sum", [(1, None, rank, (30,)) for rank in range(N)]),
        (
            "swapped",
            [(1, a, b, (10 * a + b,)) for b in range(N) for a in range(N) if a != b],
        ),
        ("unequal", [(1, 1, 0, (10, 10)), (1, 2, 0, (20, 20, 20))]),
        ("from one", [(1, 1, 0, (10,)), (1, 1, 2, (10,))]),
    ],
)
def test_what_moves_from_whom_to_whom_in_which_round(moved, name, moves):
    found = motion(*moved[name]).moves
    assert [(m.round, m.source, m.target, m.values) for m in found] == moves


def test_the_picture_has_a_block_for_each_move_and_the_line_that_received_it(moved):
    view = moving_values(*moved["chain"], title="a chain")
    assert [box.word for box in boxes(view, "moved")] == ["0", "0"]
    assert boxes(view, "moved")[0].hint == "rank 1: 0 from rank 0, recv, 4 B\nround 1"
    assert "dist.recv(x, rank - 1)" in view.svg()
    assert view.text.splitlines() == [
        "a chain: 2 blocks of values in 2 rounds",
        "rank 0 puts in 0",
        "rank 1 puts in 10",
        "rank 2 puts in 20",
        "round 1: 0 to 1: 0",
        "round 2: 1 to 2: 0",
        "rank 0 has 0",
        "rank 1 has 0",
        "rank 2 has 0",
    ]


def end_fills(view, rank):
    found = [box for box in every_box(view) if box.hint.startswith(f"rank {rank} has in the end")]
    return [box.fill for box in sorted(found, key=lambda box: box.x)]


def test_what_arrived_as_it_is_keeps_its_colour_to_the_end(moved):
    colors = [fill.color for fill in RANKS[:N]]
    for rank in range(N):
        assert end_fills(moving_values(*moved["gathered"]), rank) == colors
    # Each has what its left neighbour put in, and after a sum nobody's
    assert end_fills(moving_values(*moved["shift"]), 0) == [colors[2]]
    assert end_fills(moving_values(*moved["summed"]), 0) == ["grey"]
    # From rank 1, which has it from rank 0: the block that arrived has that colour too
    assert origins(motion(*moved["chain"]), 2) == [1]
    assert keys(moving_values(*moved["summed"]))[-1] == "from all ranks"
    trace, before, arrived, after = moved["chain"]
    doubled = moving_values(trace, before, arrived, [[2 * v + 1 for v in has] for has in after])
    assert keys(doubled)[-1] == "computed"
    assert end_fills(doubled, 2) == ["grey"]


def test_numbers_of_ranks_must_agree(moved):
    trace, before, arrived, after = moved["chain"]
    with pytest.raises(ValueError, match="before has 2 ranks, and the run 3"):
        motion(trace, before[:2], arrived, after)


def test_arrivals_need_a_recorder():
    with pytest.raises(RuntimeError, match="no recorder is open"), arrivals():
        pass
