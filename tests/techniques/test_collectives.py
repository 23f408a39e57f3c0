"""Our all-reduces against sums in float64, bit for bit between ranks, byte for byte on the wire."""

import math

import pytest
import torch
import torch.distributed as dist

from course_lib.ranks import RankError, collect
from course_lib.techniques.collectives import (
    halving_doubling_all_reduce,
    hierarchical_all_reduce,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    torch_compat,
    tree_all_reduce,
    tree_broadcast,
)

ALL_REDUCES = [
    ring_all_reduce,
    tree_all_reduce,
    halving_doubling_all_reduce,
    hierarchical_all_reduce,
]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64]
SIZES = [0, 1, 2, 7, 16, 1003]


def values(rank: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * rank + size)
    numbers = torch.randn(size, generator=generator, dtype=torch.float64) * 100
    return numbers.to(dtype)


def tolerance(dtype: torch.dtype, world_size: int) -> float:
    # Each of the world_size - 1 additions rounds once, relative to a partial sum.
    return 0.0 if not dtype.is_floating_point else torch.finfo(dtype).eps * world_size


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 5, 8])
def test_all_reduce(world_size: int) -> None:
    cases = [(f, size, dtype) for f in ALL_REDUCES for size in SIZES for dtype in DTYPES]

    def reduce_all():
        answers = []
        for all_reduce, size, dtype in cases:
            tensor = values(dist.get_rank(), size, dtype)
            assert all_reduce(tensor) is tensor, all_reduce.__name__
            answers.append(tensor)
        return answers

    by_rank = collect(reduce_all, world_size)
    for case, (all_reduce, size, dtype) in enumerate(cases):
        parts = [values(rank, size, dtype).double() for rank in range(world_size)]
        total, scale = sum(parts), sum(part.abs() for part in parts)
        for rank in range(world_size):
            answer, which = by_rank[rank][case], (all_reduce.__name__, size, dtype, rank)
            assert torch.equal(answer, by_rank[0][case]), which
            allowed = scale * tolerance(dtype, world_size)
            assert ((answer.double() - total).abs() <= allowed).all(), which


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 8])
def test_ring_sends_the_least_possible(world_size: int) -> None:
    sizes = (1, 7, 240)

    def reduce_each():
        for size in sizes:
            with torch.profiler.record_function(f"{size} numbers"):
                ring_all_reduce(torch.ones(size))

    trace = collect(reduce_each, world_size).trace
    for size in sizes:
        traffic = trace.within(f"{size} numbers").traffic()
        chunk = math.ceil(size / world_size) * 4
        assert list(traffic.sent) == [2 * (world_size - 1) * chunk] * world_size
        for source in range(world_size):
            for target in range(world_size):
                if target != (source + 1) % world_size:
                    assert traffic.matrix[source][target] == 0


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_halving_doubling_needs_few_messages(world_size: int) -> None:
    def reduce_once():
        halving_doubling_all_reduce(torch.ones(240))

    traffic = collect(reduce_once, world_size).trace.traffic()
    assert list(traffic.messages) == [2 * int(math.log2(world_size))] * world_size
    assert list(traffic.sent) == [2 * (world_size - 1) * 960 // world_size] * world_size


def test_tree_needs_few_rounds_and_many_bytes() -> None:
    traffic = collect(lambda: tree_all_reduce(torch.ones(100)), 8).trace.traffic()
    assert sum(traffic.sent) == 2 * 7 * 400
    assert max(traffic.messages) <= 1 + 3


def test_tree_broadcast_doubles_those_that_have_it() -> None:
    def broadcast_to(n: int) -> list[torch.Tensor]:
        group = dist.new_group(list(range(n)))
        member, tensors = dist.get_rank() < n, []
        with torch.profiler.record_function(f"to {n}"):
            for size in SIZES if member else ():
                tensors.append(values(dist.get_rank(), size, torch.float32))
                assert tree_broadcast(tensors[-1], group) is tensors[-1]
        return tensors

    run = collect(lambda: [broadcast_to(n) for n in (1, 2, 3, 5, 8)], 8)
    expected = [values(0, size, torch.float32) for size in SIZES]
    nbytes = 4 * sum(SIZES)
    for case, n in enumerate((1, 2, 3, 5, 8)):
        for tensors in [by_rank[case] for by_rank in run][:n]:
            assert all(map(torch.equal, tensors, expected))
        traffic = run.trace.within(f"to {n}").traffic()
        assert [*traffic.received] == [0] + [nbytes] * (n - 1) + [0] * (8 - n)
        assert traffic.sent[0] == (n - 1).bit_length() * nbytes


@pytest.mark.parametrize("ranks_per_node", [1, 2, 4])
def test_hierarchical_keeps_bytes_inside_the_nodes(ranks_per_node: int) -> None:
    def reduce_once():
        hierarchical_all_reduce(torch.ones(240), ranks_per_node=ranks_per_node)

    matrix = collect(reduce_once, 4).trace.traffic().matrix
    between = sum(
        matrix[a][b]
        for a in range(4)
        for b in range(4)
        if a // ranks_per_node != b // ranks_per_node
    )
    nodes = 4 // ranks_per_node
    assert between == 4 * 2 * (nodes - 1) * 960 // (nodes * ranks_per_node)


def test_hierarchical_refuses_nodes_that_do_not_fit() -> None:
    with pytest.raises(RankError, match=r"ValueError: .*3.*2|ValueError: .*2.*3"):
        collect(lambda: hierarchical_all_reduce(torch.ones(4), ranks_per_node=2), 3)


@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_ring_halves(world_size: int) -> None:
    def halves():
        rank = dist.get_rank()
        tensor = torch.arange(7.0) + 10**rank
        before = tensor.clone()
        chunk = ring_reduce_scatter(tensor)
        assert torch.equal(tensor, before)
        gathered = ring_all_gather(chunk)
        return chunk, gathered

    total = sum(torch.arange(7.0) + 10**rank for rank in range(world_size))
    size = math.ceil(7 / world_size)
    padded = torch.nn.functional.pad(total, (0, size * world_size - 7))
    for rank, (chunk, gathered) in enumerate(collect(halves, world_size)):
        assert torch.equal(chunk, padded[rank * size : (rank + 1) * size])
        assert torch.equal(gathered, padded)


@pytest.mark.parametrize("all_reduce", ALL_REDUCES)
def test_a_group_of_some_ranks(all_reduce) -> None:
    def reduce_in_groups():
        rank = dist.get_rank()
        odd, even = dist.new_group([1, 3]), dist.new_group([4, 0, 2])
        tensor = torch.tensor([10**rank, 1])
        all_reduce(tensor, odd if rank % 2 else even)
        return tensor.tolist()

    assert [row[0] for row in collect(reduce_in_groups, 5)] == [10101, 1010, 10101, 1010, 10101]


def test_a_rank_outside_the_group_is_told() -> None:
    def outside():
        group = dist.new_group([0])
        ring_all_reduce(torch.ones(1), group)

    with pytest.raises(RankError, match="rank 1 raised ValueError: rank 1 is not in the group"):
        collect(outside, 2)


@pytest.mark.parametrize("all_reduce", ALL_REDUCES)
def test_a_transposed_tensor_is_refused(all_reduce) -> None:
    with pytest.raises(RankError, match="not contiguous"):
        collect(lambda: all_reduce(torch.ones(2, 3).t()), 2)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_collectives_that_torch_renamed(world_size: int) -> None:
    def both():
        import warnings

        warnings.simplefilter("error")
        n, rank = dist.get_world_size(), dist.get_rank()
        gathered = torch.empty(2 * n)
        torch_compat.all_gather_single(gathered, torch.full((2,), float(rank)))
        share = torch.empty(2)
        torch_compat.reduce_scatter_single(share, torch.arange(2.0 * n))
        return gathered.tolist(), share.tolist()

    for rank, (gathered, share) in enumerate(collect(both, world_size)):
        assert gathered == [float(r) for r in range(world_size) for _ in range(2)]
        assert share == [world_size * (2.0 * rank), world_size * (2.0 * rank + 1)]
