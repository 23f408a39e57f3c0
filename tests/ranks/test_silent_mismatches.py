"""What passes on gloo without an error and is told all the same, seen from both ends."""

import inspect

import pytest
import torch
import torch.distributed as dist

from course_lib.ranks import RankError, RankTimeout, collect

F32, F64, I32 = torch.float32, torch.float64, torch.int32
SUM, MAX = dist.ReduceOp.SUM, dist.ReduceOp.MAX


def passed(sent: torch.Tensor, room: torch.Tensor):
    if dist.get_rank() == 0:
        dist.send(sent, 1)
        return None
    dist.recv(room, 0)
    return room


@pytest.mark.parametrize(
    ("sent", "room", "arrived", "said"),
    [
        (
            torch.ones(3),
            torch.zeros(5),
            [1, 1, 1, 0, 0],
            ["3 float32 (12 bytes)", "5 float32 (20 bytes)", "first 12 bytes", "the other 8"],
        ),
        (
            torch.ones(3),
            torch.zeros(3, dtype=I32),
            [0x3F800000] * 3,
            ["3 float32 (12 bytes)", "3 int32 (12 bytes)", "converts nothing"],
        ),
        (
            torch.ones(2),
            torch.zeros(2, dtype=F64),
            [torch.ones(2).view(F64).item(), 0],
            ["2 float32 (8 bytes)", "2 float64 (16 bytes)", "converts nothing", "first 8 bytes"],
        ),
    ],
)
def test_a_message_that_does_not_fill_its_tensor(sent, room, arrived, said):
    results = collect(passed, 2, (sent, room))
    assert results[1].tolist() == arrived
    (warning,) = results.warnings
    assert (warning.kind, warning.rank) == ("mismatched_message", 1)
    first = passed.__code__.co_firstlineno
    assert f"rank 0 sends {said[0]} in line {first + 2} of passed" in warning.message
    assert f"rank 1 receives into {said[1]} in line {first + 4} of passed" in warning.message
    for text in said:
        assert text in warning.message


@pytest.mark.parametrize("shape", [(4,), (2, 2), (4, 1)])
def test_only_bytes_and_dtype_count(shape):
    assert collect(passed, 2, (torch.ones(2, 2), torch.zeros(shape))).warnings == []


def test_a_message_that_is_too_long_is_explained_from_both_ends():
    def ring():
        rank, n = dist.get_rank(), dist.get_world_size()
        work = dist.isend(torch.arange(4), (rank + 1) % n)
        dist.recv(torch.zeros(4), (rank - 1) % n)
        work.wait()

    with pytest.raises(RankError) as caught:
        collect(ring, 4)
    report = " ".join(caught.value.report.split())
    assert report.startswith("the calls of the ranks do not fit together.")
    assert "sends 4 int64 (32 bytes) to rank" in report
    assert " receives into 4 float32 (16 bytes) in test_silent_mismatches.py, line" in report
    assert report.count("Why:") == 1


def from_any():
    if dist.get_rank() == 0:
        room = torch.zeros(3)
        return [dist.recv(room) for _ in range(2)]
    dist.send(torch.ones(3 - dist.get_rank()), 0)
    return None


def test_a_message_from_any_rank():
    results = collect(from_any, 3)
    said = {warning.message.partition(" in ")[0] for warning in results.warnings}
    assert said <= {f"rank {r} sends {3 - r} float32 ({12 - 4 * r} bytes)" for r in (1, 2)}
    assert said


def test_a_line_in_a_loop_is_told_once():
    def often():
        for _ in range(20):
            passed(torch.ones(1), torch.ones(2))

    assert len(collect(often, 2).warnings) == 1


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("dtype", lambda rank: dist.all_reduce(torch.ones(2, dtype=(F32, I32)[rank]))),
        ("dtype", lambda rank: dist.broadcast(torch.ones(2, dtype=(F32, I32)[rank]), 0)),
        ("size", lambda rank: dist.broadcast(torch.ones(2 + rank), 0)),
        ("reduction", lambda rank: dist.all_reduce(torch.ones(2), (SUM, MAX)[rank])),
    ],
)
def test_collectives_that_differ_and_pass(what, call):
    def differ():
        dist.barrier()
        call(dist.get_rank())

    (warning,) = collect(differ, 2).warnings
    assert warning.kind == "mismatched_collective"
    assert f"the 2nd collective does not have the same {what} everywhere" in warning.message


def test_what_was_noted_is_told_of_a_run_that_failed_too():
    def garbage():
        passed(torch.ones(1), index := torch.zeros(1, dtype=I32))
        return [10, 20][index]

    with pytest.raises(RankError) as caught:
        collect(garbage, 2)
    report = " ".join(caught.value.report.split())
    assert report.startswith("rank 1 raised IndexError")
    assert "Warning: rank 0 sends 1 float32 (4 bytes)" in report


def test_what_was_refused_is_told_once():
    with pytest.raises(RankError) as caught:
        collect(lambda: dist.all_reduce(torch.ones(3, 2)[:, 0]), 1)
    assert caught.value.report.count("not contiguous") == 1


def test_a_lost_message_is_noticed_though_gloo_keeps_busy():
    def drop():
        if dist.get_rank() == 0:
            dist.isend(torch.ones(3), 1)
        dist.barrier()
        dist.recv(torch.empty(3), 1 - dist.get_rank())

    with pytest.raises(RankTimeout) as caught:
        collect(drop, 2, timeout=60)
    report = " ".join(caught.value.report.split())
    assert report.startswith(
        "deadlock: ranks 0 and 1 wait for something that cannot come any more."
    )
    assert "Warning: the isend to rank 1" in report
    assert "gloo drops the message" in report
    assert "Why:" not in report


def in_another_order() -> None:
    a, b = torch.ones(4), torch.full((4,), 10.0)
    for name in ("ab", "ba")[dist.get_rank()]:
        if name == "a":
            dist.all_reduce(a)
        if name == "b":
            dist.all_reduce(b)


def through_a_helper() -> None:
    def together(tensor):
        dist.all_reduce(tensor)

    a, b = torch.ones(4), torch.full((4,), 10.0)
    for name in ("ab", "ba")[dist.get_rank()]:
        if name == "a":
            together(a)
        if name == "b":
            together(b)


@pytest.mark.parametrize(
    ("function", "call"), [(in_another_order, "all_reduce"), (through_a_helper, "together")]
)
def test_all_reduces_in_another_order_are_told_by_their_lines(function, call) -> None:
    (warning,) = collect(function, 2).warnings
    lines, start = inspect.getsourcelines(function)
    first, second = (
        next(n for n, text in enumerate(lines, start) if f"{call}({name})" in text) for name in "ab"
    )
    assert warning.kind == "mismatched_collective"
    assert f"rank 0's all_reduce from line {first} of {function.__name__}" in warning.message
    assert f"rank 1's from line {second} of {function.__name__}" in warning.message
    assert "Call them in the same order on every rank" in warning.message


@pytest.mark.parametrize(
    ("shapes", "warned"),
    [
        (((2, 3), (3, 2)), True),
        (((2, 3), (6,)), False),  # laid out flat, element by element the same
        (((2, 3), (1, 2, 3, 1)), False),
    ],
)
def test_equal_sizes_of_other_shapes_are_told(shapes, warned) -> None:
    def add():
        dist.all_reduce(torch.ones(shapes[dist.get_rank()]))

    said = [warning.message for warning in collect(add, 2).warnings]
    assert len(said) == warned
    assert all("all_reduce of shape (2, 3) in line" in message for message in said)


def test_ranks_may_come_to_the_same_call_by_other_lines() -> None:
    def branches():
        rank, x = dist.get_rank(), torch.ones(4)
        if rank == 0:
            dist.all_reduce(x)
        else:
            dist.all_reduce(x * 0)
        for root in (0, 1, 0):
            if rank == root:  # they take turns
                dist.broadcast(x, root)
                dist.all_reduce(x)
            else:
                dist.broadcast(x, root)
                dist.all_reduce(x * 0)
        for _ in range(3):
            dist.all_reduce(x)

    assert collect(branches, 2).warnings == []
