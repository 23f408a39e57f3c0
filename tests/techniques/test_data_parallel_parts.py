"""Buckets, uneven parts, clipping and the sampler."""

from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DistributedSampler

from course_lib.models import NASTY_MODELS, train
from course_lib.models.edge_cases import INPUTS, OUTPUTS
from course_lib.ranks import RankError, collect
from course_lib.techniques.data_parallel import DataParallel
from course_lib.techniques.data_parallel.buckets import Bucket, assign_buckets
from course_lib.techniques.data_parallel.clipping import clip_gradients
from course_lib.techniques.data_parallel.sampler import ShardSampler
from course_lib.techniques.data_parallel.uneven_inputs import agree
from tests.techniques.least_squares_task import mse, sgd

# -------------------------------------------------------------------------------------------------
# Buckets
# -------------------------------------------------------------------------------------------------


def parameters(*sizes: int, dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(size, dtype=dtype)) for size in sizes]


def sizes_of(assigned: list[list[nn.Parameter]]) -> list[list[int]]:
    return [[parameter.numel() for parameter in bucket] for bucket in assigned]


def test_buckets_are_filled_from_the_last_parameter_the_first_one_small() -> None:
    assigned = assign_buckets(parameters(5, 3, 2, 1, 1, 2), 20, 12)
    assert sizes_of(assigned) == [[2, 1], [1, 2], [3], [5]]


def test_what_is_larger_than_a_bucket_goes_alone_and_dtypes_stay_apart() -> None:
    mixed = [*parameters(1, 100), *parameters(2, dtype=torch.float64), *parameters(3)]
    assert sizes_of(assign_buckets(mixed, 40)) == [[3], [2], [100], [1]]
    assert assign_buckets([]) == []


def test_a_gradient_is_a_view_of_its_bucket() -> None:
    first, second = parameters(2, 3)
    bucket = Bucket([first, second])
    second.grad = torch.tensor([1.0, 2.0, 3.0])
    assert [parameter is first for parameter in bucket.fill(0.5)] == [True]
    assert bucket.buffer.tolist() == [0, 0, 0.5, 1, 1.5]
    assert first.grad is None
    assert second.grad.data_ptr() == bucket.views[1].data_ptr()
    second.grad += 1.5  # as backward adds to a gradient that was not set to None
    bucket.fill(2.0)
    assert bucket.buffer.tolist() == [0, 0, 4, 5, 6]


# -------------------------------------------------------------------------------------------------
# Uneven parts
# -------------------------------------------------------------------------------------------------


def numbers(samples: int, width: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(samples + width)
    return torch.randn(samples, width, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5])
def test_uneven_parts_are_weighted_and_ranks_run_out_at_different_times(world_size: int) -> None:
    """23 samples in parts of another length on each rank; ten epochs' first steps compared."""
    x, y = numbers(23, INPUTS), numbers(23, OUTPUTS)
    parts = uneven_parts(23, world_size)

    def my_batches(rank: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        return list(zip(x[parts[rank]].split(2), y[parts[rank]].split(2), strict=True))

    def on_ranks():
        found = {}
        for name, make in NASTY_MODELS.items():
            model = DataParallel(make(dist.get_rank()), None, 100, find_unused_parameters=True)
            optimizer = sgd(p for p in model.parameters() if p.requires_grad)
            steps = []
            for batch, share in agree(my_batches(dist.get_rank()) * 2):
                optimizer.zero_grad()
                if batch is None:
                    model.backward_without_data()
                else:
                    (share * mse(model, *batch)).backward()
                optimizer.step()
                steps.append([p.detach().clone() for p in model.parameters()])
            found[name] = steps
        return found

    own = [my_batches(rank) * 2 for rank in range(world_size)]
    together = [
        tuple(torch.cat(part) for part in zip(*(b[i] for b in own if i < len(b)), strict=True))
        for i in range(max(map(len, own)))
    ]
    assert len(together) >= 6
    for found in collect(on_ranks, world_size, observe=False, timeout=60):
        for name, make in NASTY_MODELS.items():
            model = make(0)
            oracle = train(model, together, sgd, mse).parameters
            assert len(found[name]) == len(oracle)
            for got, want in zip(found[name], oracle, strict=True):
                for a, b in zip(got, want.values(), strict=True):
                    assert (a - b).abs().max() < 1e-10


def uneven_parts(samples: int, n: int) -> list[slice]:
    """Consecutive parts; each rank has about twice as much as the one before it."""
    borders = [0, *(round(samples * (2**r - 1) / (2**n - 1)) for r in range(1, n + 1))]
    return [slice(a, b) for a, b in pairwise(borders)]


def test_the_agreement_ends_on_all_ranks_at_once() -> None:
    def on_ranks():
        rank = dist.get_rank()
        lengths = [[3, 1], [1], [], [0, 0, 2]][rank]
        steps = agree((torch.zeros(length, 1), torch.zeros(length)) for length in lengths)
        return [(None if batch is None else len(batch[0]), share) for batch, share in steps]

    assert list(collect(on_ranks, 4)) == [
        [(3, 3.0), (1, 4.0), (None, 0.0)],
        [(1, 1.0), (None, 0.0), (None, 0.0)],
        [(None, 0.0)] * 3,
        [(None, 0.0), (None, 0.0), (2, 4.0)],
    ]


# -------------------------------------------------------------------------------------------------
# Clipping
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_norm", [0.01, 1e6])
def test_clipping_is_that_of_one_process(max_norm: float) -> None:
    x, y = numbers(12, INPUTS), numbers(12, OUTPUTS)

    def on_ranks():
        found = {}
        for name, make in NASTY_MODELS.items():
            model = DataParallel(make(dist.get_rank()), find_unused_parameters=True)
            mse(model, x[dist.get_rank() :: 3], y[dist.get_rank() :: 3]).backward()
            norm = clip_gradients(model, max_norm)
            found[name] = norm, [p.grad for p in model.parameters() if p.grad is not None]
        return found

    for found in collect(on_ranks, 3):
        for name, make in NASTY_MODELS.items():
            model = make(0)
            mse(model, x, y).backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            assert (found[name][0] - norm).abs() < 1e-10
            for got, grad in zip(found[name][1], grads, strict=True):
                assert (got - grad).abs().max() < 1e-10


def test_clipping_the_ranks_own_gradients_is_refused_and_would_be_wrong() -> None:
    def clipped_too_early():
        layer = nn.Linear(1, 1, bias=False)
        layer(torch.full((1, 1), 1.0 + 9 * dist.get_rank())).sum().backward()
        nn.utils.clip_grad_norm_(layer.parameters(), 2.0)
        dist.all_reduce(layer.weight.grad)
        return layer.weight.grad.item() / 2

    assert list(collect(clipped_too_early, 2)) == [pytest.approx(1.5, abs=1e-5)] * 2  # not 2.0

    def inside_no_sync():
        model = DataParallel(nn.Linear(1, 1))
        with model.no_sync():
            model(torch.ones(1, 1)).sum().backward()
            clip_gradients(model, 1.0)

    with pytest.raises(RankError, match="inside no_sync the gradients are this rank's own"):
        collect(inside_no_sync, 2)

    def by_nothing():
        clip_gradients(DataParallel(nn.Linear(1, 1)), 0.0)

    with pytest.raises(RankError, match=r"max_norm = 0\.0 must be more than 0"):
        collect(by_nothing, 1)


# -------------------------------------------------------------------------------------------------
# Sampler
# -------------------------------------------------------------------------------------------------

SHAPES = [(1, 1), (5, 1), (5, 2), (12, 3), (13, 4), (3, 5)]


@pytest.mark.parametrize(("samples", "n"), SHAPES)
def test_parts_share_out_each_sample_once(samples: int, n: int) -> None:
    for epoch in (0, 3):
        parts = []
        for rank in range(n):
            sampler = ShardSampler(samples, rank, n, seed=7)
            sampler.set_epoch(epoch)
            parts.append(list(sampler))
            assert len(parts[-1]) == len(sampler)
        assert sorted(i for part in parts for i in part) == list(range(samples))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    ("samples", "n", "uneven"),
    # PyTorch's has a negative length where it drops all of fewer samples than ranks.
    [
        (*shape, how)
        for shape in SHAPES
        for how in ("pad", "drop")
        if how == "pad" or shape[0] >= shape[1]
    ],
)
def test_padded_and_dropped_parts_are_those_of_pytorch(samples: int, n: int, uneven: str) -> None:
    for shuffle in (True, False):
        for rank in range(n):
            ours = ShardSampler(samples, rank, n, shuffle=shuffle, seed=7, uneven=uneven)
            theirs = DistributedSampler(
                range(samples), n, rank, shuffle=shuffle, seed=7, drop_last=uneven == "drop"
            )
            for epoch in (0, 1):
                ours.set_epoch(epoch)
                theirs.set_epoch(epoch)
                assert list(ours) == list(theirs)
                assert len(ours) == len(theirs)


def test_epochs_differ_if_they_are_set_and_torchs_own_state_stays() -> None:
    sampler = ShardSampler(50, 0, 2)
    before = torch.get_rng_state()
    first, again = list(sampler), list(sampler)
    sampler.set_epoch(1)
    assert first == again != list(sampler)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((5, 2, 2), "rank 2 in a world of 2 ranks"),
        ((0, 0, 2), "a data set of 0 samples"),
    ],
)
def test_bad_numbers_are_refused(arguments: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShardSampler(*arguments)
    with pytest.raises(ValueError, match="uneven = 'split'; there are keep, pad, drop"):
        ShardSampler(5, 0, 2, uneven="split")
