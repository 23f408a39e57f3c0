"""What plain calls on real ranks leave in the record, whichever way they are spelled."""

import itertools
import os
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

from course_lib.observe.journal import JournalWriter
from course_lib.observe.threads import ThreadState
from course_lib.observe.work_handles import Handles
from course_lib.ranks import RankError, collect
from tests.observe.events import event
from tests.observe.nested_mode import Nested

N = 3


def every_collective():
    n, rank = dist.get_world_size(), dist.get_rank()
    x, parts = torch.ones(4), [torch.empty(4) for _ in range(n)]
    mine = parts if rank == 1 else None
    dist.broadcast(x, 1)
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    dist.reduce(x, 1)
    dist.all_gather(parts, x)
    dist.gather(x, mine, dst=1)
    dist.scatter(x, mine, src=1)
    dist.reduce_scatter(x, parts)
    dist.all_to_all_single(torch.empty(4 * n), torch.ones(4 * n))
    dist.barrier()


def test_every_collective_by_its_name():
    trace = collect(every_collective, N).trace
    expected = [
        # op, nbytes, shapes, root, reduction
        ("broadcast", 16, ((4,),), 1, None),
        ("all_reduce", 16, ((4,),), None, "max"),
        ("reduce", 16, ((4,),), 1, "sum"),
        ("all_gather", 16, ((4,),), None, None),
        ("gather", 16, ((4,),), 1, None),
        ("scatter", 16, ((4,),), 1, None),
        ("reduce_scatter", 16, ((4,),), None, "sum"),
        ("all_to_all", 48, ((12,),), None, None),
        ("barrier", 0, (), None, None),
    ]
    for rank in range(N):
        events = trace.of(rank)
        found = [(e.op, e.nbytes, e.shapes, e.peer, e.reduce_op) for e in events]
        assert found == expected
        assert [e.n for e in events] == list(range(len(expected)))
        assert all(e.blocking and not e.native and e.ranks == (0, 1, 2) for e in events)
        assert all(e.issued <= e.waited <= e.done for e in events)
        assert {e.dtype for e in events[:-1]} == {"float32"}
    assert trace.warnings == []


def lists_from_all_to_all():
    n = dist.get_world_size()
    dist.all_to_all([torch.empty(4) for _ in range(n)], [torch.ones(4) for _ in range(n)])


def test_all_to_all_of_lists():
    try:
        trace = collect(lists_from_all_to_all, N).trace
    except RankError as error:
        if "does not support alltoall" not in error.report:  # as gloo in torch 2.10
            raise
        pytest.skip("gloo of this torch has no all_to_all of lists")
    for rank in range(N):
        (event,) = trace.of(rank)
        assert (event.op, event.nbytes, event.shapes) == ("all_to_all", 48, ((4,),) * 3)
        assert event.blocking
        assert event.done
    assert [group.divergence for group in trace.match().groups] == [None]
    traffic = trace.traffic()
    assert sum(traffic.sent) == sum(traffic.received) == sum(map(sum, traffic.matrix))


def other_spellings():
    n = dist.get_world_size()
    x, room = torch.ones(4, dtype=torch.float64), torch.empty(4 * n, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # names that newer versions deprecate
        dist.all_gather_into_tensor(room, x)
        dist.reduce_scatter_tensor(x, room)
        dist.group.WORLD.allreduce([x]).wait()
        with dist._coalescing_manager():
            dist.all_reduce(x)
            dist.all_reduce(torch.ones(2, dtype=torch.float64))
    dist.all_gather_object([None] * n, "text")
    sizes = [0, 1, 2]
    rank = dist.get_rank()
    dist.all_to_all_single(
        torch.empty(rank * n, 5), torch.ones(3, 5), [rank] * n, sizes, async_op=True
    ).wait()


def test_other_spellings_of_the_same():
    trace = collect(other_spellings, N).trace
    found = [(e.op, e.nbytes, e.blocking) for e in trace.of(2)]
    assert found[:4] == [
        ("all_gather", 32, True),
        ("reduce_scatter", 32, True),
        ("all_reduce", 32, False),
        ("all_reduce", 48, True),
    ]
    assert {op for op, _, _ in found[4:-1]} == {"all_gather"}
    last = trace.of(2)[-1]
    assert (last.op, last.nbytes, last.splits) == ("all_to_all", 60, (0, 20, 40))
    assert all(event.done is not None for event in trace.events)
    assert trace.warnings == []
    assert trace.traffic().only("all_to_all").matrix == [[0, 20, 40], [0, 0, 40], [0, 20, 0]]


def functional_collectives():
    x = torch.ones(4)
    functional.all_reduce(x, "avg", dist.group.WORLD).wait()
    gathered = functional.all_gather_tensor(x, 0, dist.group.WORLD)
    view = gathered.view(2, 4)  # looks at no value
    total = view.sum()
    scattered = functional.reduce_scatter_tensor(view, "sum", 0, dist.group.WORLD)
    return total.item(), scattered + 1


def messages_of_native_code(path):
    """What is known of a handle that C++ keeps to itself."""
    journal = JournalWriter(path)
    handles = Handles(journal, None, None, None, ThreadState(itertools.count()))
    rank, room = dist.get_rank(), torch.empty(2)
    work = dist.isend(torch.ones(2), 1 - rank)
    handles.open()
    handles.expect(event(rank, 0, "send", peer=1 - rank, native=True), work)
    handles.poll()
    handles.close(whole=True)
    dist.recv(room, 1 - rank)
    work.wait()
    return room.tolist()


def test_handles_without_a_future_do_no_harm():
    results = collect(messages_of_native_code, 2, (os.devnull,), observe=False)
    assert list(results) == [[1, 1]] * 2


def functional_messages():
    rank, room, more = dist.get_rank(), torch.zeros(4), torch.zeros(4)
    out = torch.full((4,), float(rank))
    made = functional.batch_p2p_ops_inplace(
        ["isend", "irecv", "isend", "irecv"],
        [1 - rank] * 4,
        [5, 5, 6, 6],
        [out, room, out, more],
        dist.group.WORLD,
    )
    for tensor in made:
        functional.wait_tensor(tensor)
    return room


@pytest.mark.skipif(
    not hasattr(functional, "batch_p2p_ops_inplace"), reason="this torch has no such batch"
)
def test_a_batch_of_functional_messages_is_told_apart():
    results = collect(functional_messages, 2)
    assert [room.tolist() for room in results] == [[1] * 4, [0] * 4]
    events = results.trace.of(0)
    assert [(e.op, e.peer, e.tag, e.nbytes, e.native) for e in events] == [
        ("send", 1, 5, 16, False),
        ("recv", 1, 5, 16, False),
        ("send", 1, 6, 16, False),
        ("recv", 1, 6, 16, False),
    ]
    assert all(e.issued <= e.waited <= e.done for e in events)
    assert results.trace.warnings == []
    assert len(results.trace.match().pairs) == 4


def test_functional_collectives_are_waited_for_when_they_are_used():
    results = collect(functional_collectives, 2)
    assert [total for total, _ in results] == [8, 8]
    events = results.trace.of(0)
    found = [(e.op, e.nbytes, e.shapes, e.reduce_op, e.blocking) for e in events]
    assert found == [
        ("all_reduce", 16, ((4,),), "avg", False),
        ("all_gather", 16, ((4,),), None, False),
        ("reduce_scatter", 16, ((1, 4),), "sum", False),
    ]
    assert all(e.issued <= e.waited <= e.done for e in events)
    assert results.trace.warnings == []


def messages():
    rank = dist.get_rank()
    pair = dist.new_group([2, 0])
    x, y = torch.ones(5), torch.empty(5)
    if rank == 0:
        dist.send(x, 1, tag=7)
        dist.recv(y, 2, group=pair)
    if rank == 1:
        assert dist.recv(y, tag=7) == 0
    if rank == 2:
        dist.isend(x, 0, group=pair).wait()
    if rank != 1:
        dist.broadcast(x, 2, group=pair)
    right, left = (rank + 1) % 3, (rank - 1) % 3
    both = [dist.P2POp(dist.isend, x, right), dist.P2POp(dist.irecv, y, left)]
    for work in dist.batch_isend_irecv(both):
        work.wait()


def test_messages_and_groups_tell_global_ranks():
    trace = collect(messages, N).trace
    found = {
        rank: [(e.op, e.peer, e.tag, e.ranks, e.blocking) for e in trace.of(rank)][:-2]
        for rank in range(N)
    }
    world, pair = (0, 1, 2), trace.of(2)[0].ranks
    assert sorted(pair) == [0, 2]
    assert found == {
        0: [
            ("send", 1, 7, world, True),
            ("recv", 2, 0, pair, True),
            ("broadcast", 2, 0, pair, True),
        ],
        1: [("recv", 0, 7, world, True)],  # the source that "any" turned out to be
        2: [("send", 0, 0, pair, False), ("broadcast", 2, 0, pair, True)],
    }
    for rank in range(N):
        ring = [(e.op, e.peer, e.blocking) for e in trace.of(rank)][-2:]
        assert ring == [("send", (rank + 1) % 3, False), ("recv", (rank - 1) % 3, False)]
    matching = trace.match()
    assert len(matching.pairs) == 5
    assert matching.unmatched_sends == matching.unmatched_recvs == []
    assert trace.traffic().point_to_point().matrix == [[0, 40, 0], [0, 0, 20], [40, 0, 0]]
    assert trace.warnings == []


# ---------------------------------------------------------------------------------------------


def in_odd_places():
    x = torch.ones(2)
    layer = torch.nn.Linear(2, 2)
    works = []
    for parameter in layer.parameters():
        parameter.register_post_accumulate_grad_hook(
            lambda p: works.append(dist.all_reduce(p.grad, async_op=True))
        )
    with torch.profiler.record_function("step"), torch.profiler.record_function("backward"):
        layer(x).sum().backward()
    for work in works:
        work.wait()
    with torch.no_grad():
        dist.all_reduce(x)
    with torch.inference_mode(), Nested():
        dist.all_reduce(torch.ones(2))
    with pytest.raises(RuntimeError):
        torch.ones(2) + torch.ones(3)
    with pytest.raises(ZeroDivisionError), torch.profiler.record_function("broken"):
        raise ZeroDivisionError
    dist.all_reduce(x)


def test_backward_no_grad_nested_modes_and_errors():
    trace = collect(in_odd_places, 2).trace
    events = trace.of(0)
    assert [event.op for event in events] == ["all_reduce"] * 5
    inside, outside = events[:2], events[2:]
    assert [event.spans for event in inside] == [("step", "backward")] * 2
    assert [event.spans for event in outside] == [()] * 3
    assert [event.blocking for event in events] == [False, False, True, True, True]
    assert inside[0].where[0].function == "<lambda>"
    assert inside[0].where[1].function == "in_odd_places"
    assert inside[1].issued < inside[0].waited  # both were under way before one was waited for
    assert trace.warnings == []


def by_data_parallel():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    model = DistributedDataParallel(model, bucket_cap_mb=1e-4)
    for _ in range(2):
        model(torch.ones(3, 4)).sum().backward()


def test_data_parallel_in_cpp_is_seen_and_not_accused():
    trace = collect(by_data_parallel, 2).trace
    reduced = [event for event in trace.of(0) if event.op == "all_reduce"]
    elements = 4 * 8 + 8 + 8 * 2 + 2
    assert sum(event.nbytes for event in reduced) == 2 * 4 * elements
    assert all(event.native and not event.blocking for event in reduced)
    assert all(event.done is not None for event in trace.events)
    assert {event.where[0].function for event in reduced} == {"by_data_parallel"}
    assert trace.warnings == []


def frames():
    def inner():
        dist.barrier()

    inner()


def test_where_is_the_learners_line():
    where = collect(frames, 1).trace.of(0)[0].where
    assert [frame.function for frame in where] == ["inner", "frames"]
    assert where[0].file == __file__
    assert where[0].line == frames.__code__.co_firstlineno + 2


def unequal_tensors():
    dist.all_reduce(torch.ones(4 + 2 * dist.get_rank()))


def test_what_gloo_aborts_on_has_been_recorded():
    with pytest.raises(RankError) as caught:
        collect(unequal_tensors, 2)
    (group,) = caught.value.trace.match().groups
    assert (group.divergence.what, group.divergence.index) == ("size", 0)
    assert [call.shapes for call in group.divergence.calls.values()] == [((4,),), ((6,),)]
