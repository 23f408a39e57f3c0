"""Horovod's optimizer and its fused buffers, equal to one process with the whole batch."""

from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course_lib.models import NASTY_MODELS, batches, tiny_gpt, train
from course_lib.ranks import RankError, collect
from course_lib.techniques.collectives import broadcast_state, ring_all_reduce
from course_lib.techniques.collectives.fusion import fuse, fused_all_reduce, pack, unfuse
from course_lib.techniques.data_parallel import DistributedOptimizer
from tests.techniques.least_squares_task import data, mse, sgd

STEPS = 4


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_equals_one_process(world_size: int) -> None:
    steps, per_rank = data(15, STEPS), 15 // world_size
    cases = [(name, buffer_bytes) for name in NASTY_MODELS for buffer_bytes in (8, 2**20)]

    def train_one(name: str, buffer_bytes: int):
        rank = dist.get_rank()
        model = NASTY_MODELS[name](rank)  # unequal: the broadcast has to repair it
        broadcast_state(model)
        optimizer = DistributedOptimizer(
            sgd(p for p in model.parameters() if p.requires_grad), model, buffer_bytes
        )
        mine = slice(rank * per_rank, (rank + 1) * per_rank)
        after = []
        for x, y in steps:
            optimizer.zero_grad()
            mse(model, x[mine], y[mine]).backward()
            optimizer.step()
            after.append({k: p.detach().clone() for k, p in model.named_parameters()})
        return after

    used = per_rank * world_size
    seen = [(x[:used], y[:used]) for x, y in steps]
    oracles = {name: train(make(0), seen, sgd, mse) for name, make in NASTY_MODELS.items()}
    for found in collect(lambda: [train_one(*case) for case in cases], world_size, timeout=60):
        for (name, buffer_bytes), after in zip(cases, found, strict=True):
            for step, (got, want) in enumerate(zip(after, oracles[name].parameters, strict=True)):
                for key in want:
                    difference = (got[key] - want[key]).abs().max()
                    assert difference < 1e-10, (name, buffer_bytes, key, step)


def test_without_the_broadcast_ranks_stay_different() -> None:
    def forgot():
        model = NASTY_MODELS["odd"](dist.get_rank())
        optimizer = DistributedOptimizer(sgd(model.parameters()), model)
        for x, y in data(4, STEPS):
            optimizer.zero_grad()
            mse(model, x, y).backward()
            optimizer.step()
        return model.inner.weight

    first, second = collect(forgot, 2)
    assert not torch.allclose(first, second)


def test_a_branch_that_only_some_ranks_take() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (nn.Parameter(torch.ones(2)) for _ in range(3))

    def on_ranks():
        model = Branch()
        optimizer = DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), model, 4)
        loss = model.a.sum() if dist.get_rank() == 0 else (model.a * model.b).sum()
        loss.backward()
        optimizer.synchronize()
        return model.a.grad, model.b.grad, model.c.grad

    for a, b, c in collect(on_ranks, 2):
        assert a.tolist() == [1.0, 1.0]
        assert b.tolist() == [0.5, 0.5]
        assert c is None


def test_gradients_leave_while_backward_goes_on() -> None:
    def on_ranks():
        model = tiny_gpt(seed=0)
        optimizer = DistributedOptimizer(sgd(model.parameters()), model, buffer_bytes=2**15)
        tokens, targets = next(batches(1, 4))
        loss = model.loss(tokens, targets)
        with torch.profiler.record_function("backward"):
            loss.backward()
        optimizer.step()
        return len(optimizer.buffers)

    results = collect(on_ranks, 2)
    for rank in (0, 1):
        sent = [event for event in results.trace.of(rank) if event.op == "all_reduce"]
        assert len(sent) == results[rank]
        early = [event for event in sent if "backward" in event.spans]
        assert len(early) == len(sent)
        assert all(event.waited > early[-1].issued for event in sent)
        assert all(a.n < b.n for a, b in pairwise(sent))
    assert results.warnings == []


def test_it_takes_any_all_reduce() -> None:
    def on_ranks(**options):
        model = NASTY_MODELS["tied"](0)
        optimizer = DistributedOptimizer(sgd(model.parameters()), model, 64, **options)
        rank = dist.get_rank()
        for x, y in data(6, STEPS):
            optimizer.zero_grad()
            mse(model, x[rank::3], y[rank::3]).backward()
            optimizer.step()
        return [p.detach().clone() for p in model.parameters()]

    ring = collect(on_ranks, 3, kwargs={"all_reduce": ring_all_reduce})
    assert {event.op for event in ring.trace.events} == {"send", "recv"}
    for mine, torchs in zip(ring, collect(on_ranks, 3), strict=True):
        for a, b in zip(mine, torchs, strict=True):
            assert (a - b).abs().max() < 1e-12


def test_backward_twice_is_refused() -> None:
    def twice():
        model = nn.Linear(2, 1)
        optimizer = DistributedOptimizer(sgd(model.parameters()), model)
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    with pytest.raises(RankError, match=r"backward ran again before step\(\)"):
        collect(twice, 2)


def test_packing_is_greedy_and_in_order() -> None:
    tensors = [torch.ones(n) for n in (2, 3, 1, 10, 1)] + [torch.ones(1).double()]
    sizes = [[t.numel() for t in run] for run in pack(tensors, 20)]
    assert sizes == [[2, 3], [1], [10], [1], [1]]
    assert list(pack([], 20)) == []
    with pytest.raises(ValueError, match="at least 1 byte, not 0"):
        list(pack(tensors, 0))


def test_fuse_and_unfuse_any_shape() -> None:
    tensors = [torch.randn(2, 3).t(), torch.tensor(1.5), torch.empty(0), torch.randn(4)]
    copies = [torch.zeros_like(t) for t in tensors]
    unfuse(fuse(tensors), copies)
    assert all(torch.equal(a, b) for a, b in zip(tensors, copies, strict=True))


def test_fused_all_reduce_saves_calls_not_bytes() -> None:
    def on_ranks(buffer_bytes: int):
        tensors = [torch.full((5,), 10.0 ** dist.get_rank()) for _ in range(8)]
        fused_all_reduce(tensors, buffer_bytes)
        return tensors

    for buffer_bytes, calls in ((1, 8), (40, 4), (1000, 1)):
        results = collect(on_ranks, 3, (buffer_bytes,))
        sent = [event for event in results.trace.of(0) if event.op == "all_reduce"]
        assert len(sent) == calls
        assert sum(event.nbytes for event in sent) == 8 * 20
        assert all(torch.equal(t, torch.full((5,), 111.0)) for t in results[2])
