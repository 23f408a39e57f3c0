"""A parameter server that is sequential does what one process with the whole batch does."""

from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course_lib.models import NASTY_MODELS, train
from course_lib.ranks import RankError, collect
from course_lib.techniques.parameter_server import (
    HashRing,
    Job,
    KeyRange,
    Layout,
    PeerLost,
    Server,
    SignificantlyModified,
    Worker,
    by_hash,
    by_range,
    by_tensor,
)
from tests.techniques.least_squares_task import data, mse, sgd

STEPS = 10
MANY = 60.0  # seconds; for a machine with other things to do


def adam(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.01)


def shares(workers: int) -> list[slice]:
    """Worker w has w + 1 samples."""
    starts = [w * (w + 1) // 2 for w in range(workers + 1)]
    return [slice(a, b) for a, b in pairwise(starts)]


def place(how: str, layout: Layout, servers: int):
    if how == "range":
        return by_range(layout.total, servers)
    if how == "tensor":
        return by_tensor(layout.ranges, servers)
    return by_hash(layout.total, HashRing(range(servers)), block=5)


def run(job: Job, model: nn.Module, make_optimizer, batches, parts: bool = False):
    """On every rank of a job: a worker's parameters as pulled, step by step; a server's report."""
    layout = Layout(model.parameters())
    if dist.get_rank() not in job.workers:
        return Server(job, layout, make_optimizer).serve()
    worker = Worker(job, layout)
    mine = shares(len(job.workers))[job.workers.index(dist.get_rank())]
    after = []
    for x, y in batches:
        worker.pull()
        after.append({k: p.detach().clone() for k, p in model.named_parameters()})
        mse(model, x[mine], y[mine]).backward()
        scale = (mine.stop - mine.start) / len(x)
        if parts:
            for keys in reversed(layout.with_gradient()):
                worker.push([keys], scale, finish=False)
            worker.push([], scale)
        else:
            worker.push(scale=scale)
    worker.pull()
    after.append({k: p.detach().clone() for k, p in model.named_parameters()})
    worker.leave()
    return after[1:]


def agree(after, oracle) -> None:
    for step, (got, want) in enumerate(zip(after, oracle.parameters, strict=True)):
        assert got.keys() == want.keys()
        for name in want:
            assert (got[name] - want[name]).abs().max() < 1e-10, (name, step)


@pytest.mark.parametrize(
    ("workers", "servers", "how"),
    [(1, 1, "range"), (2, 2, "hash"), (3, 2, "tensor"), (4, 1, "range"), (5, 3, "range")],
)
def test_sequential_equals_one_process(workers: int, servers: int, how: str) -> None:
    batches = data(sum(range(workers + 1)))
    cases = list(zip(NASTY_MODELS, (sgd, adam, sgd, adam, sgd), strict=True))

    def on_ranks():
        results = {}
        for name, make_optimizer in cases:
            model = NASTY_MODELS[name](dist.get_rank())  # the first worker's is what counts
            job = Job(
                tuple(range(workers)),
                tuple((workers + s,) for s in range(servers)),
                place(how, Layout(model.parameters()), servers),
            )
            results[name] = run(job, model, make_optimizer, batches)
        return results

    results = collect(on_ranks, workers + servers, timeout=MANY)
    for name, make_optimizer in cases:
        oracle = train(NASTY_MODELS[name](0), batches, make_optimizer, mse)
        for rank in range(workers):
            agree(results[rank][name], oracle)
        for rank in range(workers, workers + servers):
            report = results[rank][name]
            assert {step.staleness for step in report.steps} <= {0}
            assert {start.lead for start in report.starts} == {0}
            assert len(report.starts) == workers * (STEPS + 1)
            assert not report.lost


def test_a_task_may_push_layer_by_layer() -> None:
    batches = data(6)

    def on_ranks():
        model = NASTY_MODELS["unused"](dist.get_rank())
        placement = by_range(Layout(model.parameters()).total, 2)
        job = Job((1, 2, 4), ((0,), (3,)), placement)  # roles in any order of ranks
        return run(job, model, sgd, batches, parts=True)

    results = collect(on_ranks, 5, timeout=MANY)
    # Rank 1 is the first worker.
    oracle = train(NASTY_MODELS["unused"](1), batches, sgd, mse)
    for rank in (1, 2, 4):
        agree(results[rank], oracle)


def test_without_the_weights_of_uneven_shares_it_is_not_the_big_batch() -> None:
    batches = data(3, 1)

    def on_ranks():
        model = NASTY_MODELS["odd"](0)
        layout = Layout(model.parameters())
        job = Job((0, 1), ((2,),), by_range(layout.total, 1))
        if dist.get_rank() == 2:
            return Server(job, layout, sgd).serve()
        worker, (x, y) = Worker(job, layout), batches[0]
        worker.pull()
        mine = shares(2)[dist.get_rank()]
        mse(model, x[mine], y[mine]).backward()
        worker.push(scale=1 / 2)  # a mean of means
        worker.pull()
        worker.leave()
        return {k: p.detach() for k, p in model.named_parameters()}

    got = collect(on_ranks, 3, timeout=MANY)[0]
    want = train(NASTY_MODELS["odd"](0), batches, sgd, mse).parameters[-1]
    assert max((got[name] - want[name]).abs().max() for name in want) > 1e-4


def test_traffic_is_twice_the_model_for_every_worker_and_step() -> None:
    steps, workers = 3, 3

    def on_ranks(steps):
        model = NASTY_MODELS["tied"](0)
        layout = Layout(model.parameters())
        job = Job((0, 1, 2), ((3,), (4,)), by_range(layout.total, 2))
        run(job, model, sgd, data(6, steps))
        return layout.total * 8

    runs = [collect(on_ranks, 5, (n,), timeout=MANY) for n in (steps, steps + 1)]
    size = runs[0][0]
    before, after = (run.trace.traffic() for run in runs)
    headers = 300  # of a push and a pull, with the ranges that they name
    for server in (3, 4):
        for more in (
            after.sent[server] - before.sent[server],
            after.received[server] - before.received[server],
        ):
            assert workers * size / 2 <= more <= workers * (size / 2 + headers)
    assert sum(after.matrix[a][b] for a in range(3) for b in range(3)) == 0  # never each other
    assert after.matrix[3][4] == after.matrix[4][3] == 0


def test_filtered_pushes_add_up_to_what_was_not_filtered() -> None:
    def on_ranks(threshold):
        model = NASTY_MODELS["odd"](0)
        layout = Layout(model.parameters())
        job = Job((0,), ((1,),), by_range(layout.total, 1))
        if dist.get_rank() == 1:
            return Server(job, layout, lambda p: torch.optim.SGD(p, lr=1.0)).serve()
        keep = SignificantlyModified(layout.total, threshold, layout.dtype)
        worker = Worker(job, layout, filter=keep)
        before = layout.values(layout.everything)
        total = torch.zeros(layout.total, dtype=layout.dtype)
        for x, y in data(4):
            worker.pull()
            mse(model, x, y).backward()
            total += layout.gradients(layout.everything)
            worker.push()
        worker.pull()
        worker.leave()
        change = before - layout.values(layout.everything)
        return change, total, keep.unsent

    for threshold, filtered in ((0.0, False), (0.3, True)):
        run = collect(on_ranks, 2, (threshold,), timeout=MANY)
        change, total, unsent = run[0]
        assert torch.allclose(change + unsent, total, atol=1e-12)
        assert bool(unsent.any()) == filtered
        assert (unsent.abs() <= threshold).all()


def test_bad_roles_are_refused_before_any_message() -> None:
    layout = Layout(NASTY_MODELS["odd"](0).parameters())
    whole = by_range(layout.total, 1)
    with pytest.raises(ValueError, match=r"every rank has one role.*\[0, 1, 1\]"):
        Job((0, 1), ((1,),), whole)
    with pytest.raises(ValueError, match="no replica or one"):
        Job((0,), ((1, 2, 3),), whole)
    with pytest.raises(ValueError, match="placed on 1 servers, and there are 2"):
        Job((0,), ((1,), (2,)), whole)
    with pytest.raises(ValueError, match=f"1 keys up to 1.*0 to {layout.total}"):
        Job((0,), ((1,),), ((KeyRange(0, 1),),)).check(layout)
    mixed = [nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1).double())]
    with pytest.raises(ValueError, match=r"one dtype.*float32.*float64"):
        Layout(mixed)

    def stranger():
        Worker(Job((0,), ((1,),), whole), layout)

    with pytest.raises(RankError, match="rank 1 is not among the workers"):
        collect(lambda: stranger() if dist.get_rank() == 1 else None, 2, timeout=MANY)


def test_a_dead_server_without_replica_is_reported() -> None:
    def on_ranks():
        group = dist.new_group([0, 1])
        model = NASTY_MODELS["odd"](0)
        layout = Layout(model.parameters())
        job = Job((0,), ((1,),), by_range(layout.total, 1), group=group)

        class Mortal(Server):
            def handle(self, request):
                if request.task == 2:
                    raise InterruptedError
                super().handle(request)

        if dist.get_rank() == 1:
            with pytest.raises(InterruptedError):
                Mortal(job, layout, sgd).serve()
            dist.destroy_process_group(group)  # closes its connections, as a killed process does
            return None
        worker = Worker(job, layout)
        for task in range(5):
            try:
                worker.pull()
                mse(model, *data(4, 1)[0]).backward()
                worker.push()
            except PeerLost as lost:
                return task, str(lost)
        return None

    task, said = collect(on_ranks, 2, timeout=MANY)[0]
    assert task == 2
    assert "rank 1" in said
