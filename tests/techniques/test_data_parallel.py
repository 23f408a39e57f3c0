"""Data parallelism, equal to one process with the whole batch."""

import os
import signal
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib.models import NASTY_MODELS, batches, tiny_gpt, train
from course_lib.models.tiny_gpt import token_loss
from course_lib.ranks import RankError, collect
from course_lib.techniques.data_parallel import DataParallel, NaiveDataParallel
from tests.techniques.least_squares_task import data, mse, sgd


def wrapped(make, **options) -> tuple[DataParallel, torch.optim.Optimizer]:
    model = DataParallel(make(dist.get_rank()), find_unused_parameters=True, **options)
    return model, sgd(p for p in model.parameters() if p.requires_grad)


def copies(model: nn.Module) -> dict[str, torch.Tensor]:
    return {k: p.detach().clone() for k, p in model.named_parameters()}


# Bytes of the first and of further buckets: one gradient each, a few together.
SIZES = [(1, 1), (64, 200)]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5])
def test_ten_steps_are_those_of_one_process(world_size: int) -> None:
    """Ranks start unequal. float64 within 1e-10."""
    steps = data(3 * world_size)

    def on_ranks():
        rank, found = dist.get_rank(), {}
        for name, make in NASTY_MODELS.items():
            for first, further in SIZES:
                model, optimizer = wrapped(make, first_bucket_bytes=first, bucket_bytes=further)
                for step, (x, y) in enumerate(steps):
                    optimizer.zero_grad(set_to_none=step % 2 == 0)  # both ways people do it
                    mse(model, x[rank::world_size], y[rank::world_size]).backward()
                    optimizer.step()
                    found[name, first, step] = copies(model.module)
        return found

    oracles = {name: train(make(0), steps, sgd, mse) for name, make in NASTY_MODELS.items()}
    for found in collect(on_ranks, world_size, observe=False, timeout=60):
        for (name, first, step), got in found.items():
            for key, want in oracles[name].parameters[step].items():
                difference = (got[key] - want).abs().max()
                assert difference < 1e-10, (name, first, step, key)


def test_the_naive_one_takes_these_steps_too() -> None:
    steps = data(6)

    def on_ranks():
        rank, found = dist.get_rank(), {}
        for name, make in NASTY_MODELS.items():
            model = NaiveDataParallel(make(rank))
            optimizer = sgd(p for p in model.parameters() if p.requires_grad)
            for x, y in steps:
                optimizer.zero_grad()
                mse(model, x[rank::2], y[rank::2]).backward()
                model.average_gradients()
                optimizer.step()
            found[name] = copies(model.module)
        return found

    oracles = {name: train(make(0), steps, sgd, mse) for name, make in NASTY_MODELS.items()}
    for found in collect(on_ranks, 2):
        for name, got in found.items():
            for key, want in oracles[name].parameters[-1].items():
                assert (got[key] - want).abs().max() < 1e-10, (name, key)


def test_float32_stays_within_what_rounding_can_do() -> None:
    """A sum over 2 ranks in another order is off by an ulp or so; ten steps of SGD add these up.

    eps = 1.2e-7, gradients of order 1, learning rate 0.05, momentum 0.9 (ten times in the limit):
    10 steps x 0.5 x 1e-7 x a few operations stay below 1e-5 on weights of order 1.
    """
    steps = [(x.float(), y.float()) for x, y in data(8)]

    def on_ranks():
        model, optimizer = wrapped(lambda seed: NASTY_MODELS["tied"](seed).float())
        rank = dist.get_rank()
        for x, y in steps:
            optimizer.zero_grad()
            mse(model, x[rank::2], y[rank::2]).backward()
            optimizer.step()
        return copies(model.module)

    want = train(NASTY_MODELS["tied"](0).float(), steps, sgd, mse).parameters[-1]
    one, other = collect(on_ranks, 2)
    for name in want:
        assert torch.equal(one[name], other[name])
        assert (one[name] - want[name]).abs().max() < 1e-5


def test_buffers_start_equal_and_stay_the_ranks_own() -> None:
    def on_ranks():
        norm = nn.BatchNorm1d(3)
        norm.running_mean.fill_(float(dist.get_rank() + 1))
        model = DataParallel(norm)
        start = norm.running_mean.clone()
        model(torch.full((2, 3), 10.0 * dist.get_rank())).sum().backward()
        return start, norm.running_mean.clone()

    (start, mine), (other_start, others) = collect(on_ranks, 2)
    assert start.tolist() == other_start.tolist() == [1.0] * 3
    assert not torch.equal(mine, others)


# -------------------------------------------------------------------------------------------------


def test_buckets_leave_in_one_order_while_backward_goes_on() -> None:
    def on_ranks():
        model = DataParallel(tiny_gpt(seed=0), first_bucket_bytes=2**13, bucket_bytes=2**16)
        loss = model.module.loss(*next(batches(1, 4)))
        with record_function("backward"):
            loss.backward()
        return [bucket.buffer.nbytes for bucket in model.buckets]

    results = collect(on_ranks, 2)
    for rank in (0, 1):
        sent = [event for event in results.trace.of(rank) if event.op == "all_reduce"]
        assert [event.nbytes for event in sent] == results[rank]
        assert len(sent) > 4
        assert sent[0].nbytes <= 2**13
        assert all("backward" in event.spans for event in sent)
        assert all(event.waited > sent[-1].issued for event in sent)
        assert all(a.n < b.n for a, b in pairwise(sent))
    assert results.warnings == []


def test_pytorchs_own_reduces_the_same_bytes_to_the_same_parameters() -> None:
    def on_ranks():
        from torch.nn.parallel import DistributedDataParallel

        found = []
        for wrap in (DataParallel, DistributedDataParallel):
            model = wrap(tiny_gpt(layers=1, seed=dist.get_rank()).double())
            optimizer = sgd(model.parameters())
            for tokens, targets in batches(3, 6):
                optimizer.zero_grad()
                mine = slice(dist.get_rank(), None, 2)
                loss = token_loss(model(tokens[mine]), targets[mine])
                with record_function(wrap.__name__):
                    loss.backward()
                optimizer.step()
            found.append(copies(model.module))
        return found

    results = collect(on_ranks, 2, timeout=60)
    for rank, (ours, theirs) in enumerate(results):
        for name, parameter in theirs.items():
            assert (ours[name] - parameter).abs().max() < 1e-12
        sent = {
            wrap: sum(
                event.nbytes
                for event in results.trace.of(rank)
                if event.op == "all_reduce" and wrap in event.spans
            )
            for wrap in ("DataParallel", "DistributedDataParallel")
        }
        assert sent["DataParallel"] == sent["DistributedDataParallel"] > 0


def test_no_sync_sends_nothing_and_the_next_backward_sends_it_all() -> None:
    (x, y), *_ = data(12, 1)

    def on_ranks():
        model, _ = wrapped(NASTY_MODELS["tied"], first_bucket_bytes=1, bucket_bytes=300)
        rank = dist.get_rank()
        mine = list(zip(x[rank::2].chunk(3), y[rank::2].chunk(3), strict=True))
        with record_function("no_sync"), model.no_sync():
            for part in mine[:-1]:
                (mse(model, *part) / 3).backward()
        local = copies_of_gradients(model.module)
        (mse(model, *mine[-1]) / 3).backward()
        return local, copies_of_gradients(model.module)

    results = collect(on_ranks, 2)
    assert not [event for event in results.trace.events if "no_sync" in event.spans]
    model = NASTY_MODELS["tied"](0)
    mse(model, x, y).backward()
    (one_local, one), (other_local, other) = results
    for name, want in copies_of_gradients(model).items():
        assert (one[name] - want).abs().max() < 1e-10
        assert torch.equal(one[name], other[name])
        assert not torch.equal(one_local[name], other_local[name])


def copies_of_gradients(model: nn.Module) -> dict[str, torch.Tensor | None]:
    return {k: None if p.grad is None else p.grad.clone() for k, p in model.named_parameters()}


def test_an_exception_in_no_sync_does_not_leave_it_off() -> None:
    def on_ranks():
        model = DataParallel(nn.Linear(1, 1, bias=False))
        try:
            with model.no_sync():
                raise KeyError("a batch that cannot be read")
        except KeyError:
            pass
        model(torch.full((1, 1), 2.0 + 2 * dist.get_rank())).sum().backward()
        return model.module.weight.grad.item()

    assert list(collect(on_ranks, 2)) == [3.0, 3.0]


# -------------------------------------------------------------------------------------------------


class Branches(nn.Module):
    """c takes no part at all, b on some ranks only, and `d` in microbatches that are not sent."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = (nn.Parameter(torch.ones(2)) for _ in range(4))

    def forward(self, with_b: bool, with_d: bool = False) -> torch.Tensor:
        total = self.a * self.b if with_b else self.a
        return (total + self.d if with_d else total).sum()


@pytest.mark.parametrize("bucket_bytes", [1, 100])
def test_a_branch_that_only_some_ranks_take(bucket_bytes: int) -> None:
    def on_ranks():
        model = DataParallel(Branches(), None, bucket_bytes, find_unused_parameters=True)
        found = []
        for _ in range(2):
            model.zero_grad()
            model(with_b=dist.get_rank() == 1).backward()
            found.append([p if p is None else p.tolist() for p in gradients(model.module)])
        with model.no_sync():
            model(with_b=False, with_d=True).backward()
        model(with_b=False).backward()
        return found, model.module.d.grad.tolist()

    for found, d in collect(on_ranks, 3):
        assert found == [[[1.0, 1.0], [pytest.approx(1 / 3)] * 2, None, None]] * 2
        assert d == [1.0, 1.0]


def gradients(model: Branches) -> list[torch.Tensor | None]:
    return [p.grad for p in (model.a, model.b, model.c, model.d)]


def test_an_unused_parameter_is_named_and_nobody_hangs() -> None:
    def on_ranks():
        DataParallel(Branches())(with_b=dist.get_rank() == 1).backward()

    with pytest.raises(RankError, match=r"no gradient for b, c, d: .*find_unused_parameters=True"):
        collect(on_ranks, 2)


def test_a_model_without_anything_to_train_is_refused() -> None:
    def on_ranks():
        DataParallel(nn.Linear(1, 1).requires_grad_(False))

    with pytest.raises(RankError, match="none of the module's parameters is trainable") as refused:
        collect(on_ranks, 1)
    assert refused.value.trace is None or refused.value.trace.events == []


@pytest.mark.parametrize("world_size", [2, 3])
def test_a_rank_that_is_killed_is_reported(world_size: int) -> None:
    """The others wait for its buckets, and are told why none comes."""

    def on_ranks():
        model = DataParallel(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), None, 8)
        if dist.get_rank() == 1:
            model.module[0].weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        model(torch.ones(1, 2)).sum().backward()

    with pytest.raises(RankError, match=r"SIGKILL|signal 9|killed") as killed:
        collect(on_ranks, world_size, timeout=30)
    assert 1 in killed.value.failures
