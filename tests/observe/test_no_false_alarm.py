"""Right programs over all that torch.distributed offers: not one of them gets a warning.

What this torch's gloo does not have raises on every rank alike, with the recorder and without it.
"""

import itertools
import time
import warnings
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed import distributed_c10d

from course_lib.ranks import collect

N = 2
REDUCTIONS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"]
DTYPES = [torch.float32, torch.bfloat16, torch.complex64, torch.int64, torch.uint8, torch.bool]
WAYS = ["blocking", "wait", "poll", "future"]

Case = tuple[str, Callable[[], object]]


def full(dtype: torch.dtype, shape: tuple[int, ...] = (6,)) -> torch.Tensor:
    return (torch.ones(shape) * (dist.get_rank() + 1)).to(dtype)


def reduction(name: str) -> object:
    return dist._make_nccl_premul_sum(2.0) if name == "PREMUL_SUM" else getattr(dist.ReduceOp, name)


def finish(work: dist.Work | None, way: str) -> None:
    """Wait in this way."""
    if work is None:
        return
    if not isinstance(work, dist.Work):  # of several calls, which can only be waited for
        way = "wait"
    if way == "poll":
        for _ in range(5):  # some of gloo's handles are never complete before wait()
            if work.is_completed():
                break
            time.sleep(0)
    elif way == "future":
        work.get_future().wait()
        return
    work.wait()


def collectives(dtype: torch.dtype, way: str) -> Iterator[Case]:
    """Calls that reduce nothing."""
    rank, late = dist.get_rank(), way != "blocking"
    parts = [full(dtype, (6 // N,)) for _ in range(N)]
    room = [torch.zeros(6, dtype=dtype) for _ in range(N)]
    whole, x = torch.zeros(6 * N, dtype=dtype), full(dtype)
    cases: dict[str, Callable[[], dist.Work | None]] = {
        "broadcast": lambda: dist.broadcast(x, 1, async_op=late),
        "all_gather": lambda: dist.all_gather(room, x, async_op=late),
        "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(whole, x, async_op=late),
        "gather": lambda: dist.gather(x, room if rank == 1 else None, dst=1, async_op=late),
        "scatter": lambda: dist.scatter(x, room if rank == 0 else None, src=0, async_op=late),
        "all_to_all": lambda: dist.all_to_all(
            [torch.zeros(6 // N, dtype=dtype) for _ in range(N)], parts, async_op=late
        ),
        "all_to_all_single": lambda: dist.all_to_all_single(
            torch.zeros(6, dtype=dtype), x, async_op=late
        ),
        "all_to_all_uneven": lambda: dist.all_to_all_single(
            torch.zeros(6, dtype=dtype), x, [6 // N] * N, [6 // N] * N, async_op=late
        ),
        "all_gather_empty": lambda: dist.all_gather(
            [torch.zeros(0, dtype=dtype) for _ in range(N)],
            torch.zeros(0, dtype=dtype),
            async_op=late,
        ),
        "all_gather_scalar": lambda: dist.all_gather(
            [torch.zeros((), dtype=dtype) for _ in range(N)],
            torch.ones((), dtype=dtype),
            async_op=late,
        ),
    }
    for name, call in cases.items():
        yield f"{name} {dtype} {way}", lambda call=call: finish(call(), way)


def reductions(name: str, dtype: torch.dtype, way: str) -> Iterator[Case]:
    """Calls that reduce."""
    op, late = reduction(name), way != "blocking"
    x, parts = full(dtype), [full(dtype, (6 // N,)) for _ in range(N)]
    y = torch.zeros(6 // N, dtype=dtype)
    cases: dict[str, Callable[[], dist.Work | None]] = {
        "all_reduce": lambda: dist.all_reduce(x, op, async_op=late),
        "reduce": lambda: dist.reduce(x, 1, op, async_op=late),
        "reduce_scatter": lambda: dist.reduce_scatter(y, parts, op, async_op=late),
        "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(y, x, op, async_op=late),
        "all_reduce_coalesced": lambda: dist.all_reduce_coalesced(
            [x.clone(), y], op, async_op=late
        ),
        "coalescing": lambda: coalesced(x, op, late),
    }
    for call_name, call in cases.items():
        yield f"{call_name} {name} {dtype} {way}", lambda call=call: finish(call(), way)


def coalesced(x: torch.Tensor, op: object, late: bool) -> dist.Work | None:
    with distributed_c10d._coalescing_manager(async_ops=late) as manager:
        dist.all_reduce(x, op)
        dist.all_reduce(x.clone(), op)
    return manager if late else None


def others() -> Iterator[Case]:
    """Messages, objects, functional collectives, groups."""
    rank, right, left = dist.get_rank(), (dist.get_rank() + 1) % N, (dist.get_rank() - 1) % N
    x, got = full(torch.float32), torch.zeros(6)
    one = dist.new_group([0])

    def around(receive: Callable[[], object]) -> None:
        work = dist.isend(x, right)
        receive()
        work.wait()

    def batch() -> None:
        ops = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, got, left)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        got.add_(1)

    def any_source() -> None:
        if rank:
            dist.send(x, 0)
        else:
            for _ in range(N - 1):
                dist.recv(got)
                got.add_(1)

    def late_any_source() -> None:
        if rank:
            dist.isend(x, 0).wait()
        else:
            for _ in range(N - 1):
                dist.irecv(got).wait()

    def objects() -> None:
        dist.all_gather_object([None] * N, {"rank": rank})
        dist.broadcast_object_list([rank, "x"], 1)
        dist.gather_object(rank, [None] * N if rank == 0 else None, 0)
        dist.scatter_object_list([None], [1, 2] if rank == 0 else None, 0)
        if rank == 0:
            dist.send_object_list([1, 2], 1)
        elif rank == 1:
            dist.recv_object_list([None, None], 0)

    def in_functions() -> None:
        group = dist.group.WORLD
        for made in (
            functional.all_reduce(x, "sum", group),
            functional.all_reduce(x, "avg", group),
            functional.all_gather_tensor(x, 0, group),
            functional.reduce_scatter_tensor(x, "sum", 0, group),
            functional.reduce_scatter_tensor(x, "avg", 0, group),
            functional.all_to_all_single(x, None, None, group),
            functional.broadcast(x, 1, group),
            *functional.all_reduce_coalesced([x, x.clone()], "sum", group),
            *functional.all_gather_into_tensor_coalesced([x, x.clone()], group),
            *functional.reduce_scatter_tensor_coalesced([x], "sum", [0], group),
        ):
            made.add(1).sum().item()

    def in_a_group_of_one() -> None:
        if rank == 0:
            dist.all_reduce(x, op=dist.ReduceOp.AVG, group=one, async_op=True).wait()
            dist.broadcast(x, group_src=0, group=one)

    def in_a_graph() -> None:
        w = torch.ones(6, requires_grad=True)
        loss = (w * x).sum()
        shown = loss.detach().clone()
        dist.all_reduce(shown, op=dist.ReduceOp.AVG, async_op=True).wait()
        loss.backward()
        dist.all_reduce(w.grad, op=dist.ReduceOp.AVG, async_op=True).wait()
        w.grad.div_(2)

    yield "isend recv", lambda: around(lambda: dist.recv(got, left))
    yield "isend irecv", lambda: around(lambda: dist.irecv(got, left).wait())
    yield "batch", batch
    yield "any source", any_source
    yield "late any source", late_any_source
    yield "objects", objects
    yield "functional", in_functions
    yield "group", in_a_group_of_one
    yield "graph", in_a_graph
    yield "barrier", lambda: dist.barrier(async_op=True).wait()
    yield "monitored barrier", lambda: dist.monitored_barrier()


def everything() -> list[str]:
    """Run all cases; the names of those that this torch refuses."""
    refused = []
    cases = itertools.chain(
        *(collectives(dtype, way) for dtype in DTYPES for way in WAYS),
        *(reductions(op, t, way) for op in REDUCTIONS for t in DTYPES for way in WAYS),
        others(),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, case in cases:
            try:
                case()
            except (RuntimeError, ValueError, AttributeError, TypeError) as problem:
                refused.append(f"{name}: {type(problem).__name__}")
                distributed_c10d._world.pg_coalesce_state.clear()
    return refused


def test_what_is_right_gets_no_warning() -> None:
    results = collect(everything, N, timeout=120)
    assert results.warnings == []
    plainly = collect(everything, N, timeout=120, observe=False)
    assert list(results) == list(plainly)
    assert len(plainly[0]) < 600  # else it was not much that was tried
    assert not any(
        name.startswith(("all_reduce SUM", "all_reduce AVG torch.f")) for name in plainly[0]
    )


def test_a_race_with_an_average_is_still_found() -> None:
    def too_early():
        x = torch.ones(4, requires_grad=True)
        buffer = torch.zeros(4)

        def send(gradient):
            if dist.get_rank() == 1:
                dist.recv(torch.zeros(1), 0)  # so rank 0's average cannot be done when it writes
            work = dist.all_reduce(buffer, op=dist.ReduceOp.AVG, async_op=True)
            buffer.copy_(gradient)  # inside backward: only torch's count of writes tells
            if dist.get_rank() == 0:
                dist.send(torch.zeros(1), 1)
            works.append(work)

        works: list[dist.Work] = []
        x.register_hook(send)
        x.sum().backward()
        works[0].wait()

    kinds = {(warning.rank, warning.kind) for warning in collect(too_early, 2).warnings}
    assert (0, "rewritten_in_flight") in kinds
