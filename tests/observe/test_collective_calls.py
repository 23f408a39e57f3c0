"""Each collective is called once, told apart from the others, and gives what its name says."""

import torch

from course_lib.observe.collective_calls import PYTORCHS, call_each, what_moved
from course_lib.ranks import run_ranks


def twice(x):
    return [x, x + 1]


def test_each_call_is_told_from_the_others():
    called = run_ranks(call_each, 4, {"no message": (twice, 2), **PYTORCHS})
    moved = what_moved(called.trace, called)
    assert list(moved) == ["no message", *PYTORCHS]
    came_out = {name: after for name, (_, _, _, after) in moved.items()}
    for rank in range(4):
        first = 10.0 * (rank + 1)
        assert moved["no message"][1][rank] == [first, first + 1]
        assert came_out["no message"][rank] == [first, first + 1, first + 1, first + 2]
        assert came_out["dist.all_gather"][rank] == [10, 20, 30, 40]
        assert came_out["dist.all_reduce"][rank] == [100]
        assert came_out["dist.reduce_scatter"][rank] == [100 + 4 * rank]
        assert came_out["dist.all_to_all_single"][rank] == [
            10 + rank,
            20 + rank,
            30 + rank,
            40 + rank,
        ]
    for name, (trace, _, arrived, _) in moved.items():
        assert {f"dist.{event.op}" for event in trace.events} == (
            {name.removesuffix("_single")} if name in PYTORCHS else set()
        )
        assert all(event.n in arrived[event.rank] for event in trace.events)


def test_what_is_put_in_is_noted_before_it_changes():
    def zeroes(x):
        return x.zero_()

    called = run_ranks(call_each, 1, {"zeroes": (zeroes, 3)})
    _, before, _, after = what_moved(called.trace, called)["zeroes"]
    assert before == [[10, 11, 12]]
    assert after == [torch.zeros(3).tolist()]
