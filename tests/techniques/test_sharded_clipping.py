"""The norm of a gradient of which each rank has a part."""

import math

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course_lib.ranks import collect
from course_lib.techniques.zero.clipping import clip_grad_norm_, global_norm

SIZES = (5, 3)  # rows over 4 ranks: some have none


def gradients() -> tuple[list[torch.Tensor], torch.Tensor]:
    """Two that are sharded by rows, and a bias that all ranks have."""
    generator = torch.Generator().manual_seed(1)
    made = [torch.randn(n, 4, generator=generator, dtype=torch.float64) for n in (*SIZES, 1)]
    return made[:2], made[2][0]


def on_ranks(max_norm: float, norm_type: float):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    sharded, bias = gradients()
    shards = [gradient.tensor_split(ranks)[rank].clone() for gradient in sharded]
    norm = clip_grad_norm_(shards, max_norm, replicated=[bias], norm_type=norm_type)
    return norm, shards, bias


@pytest.mark.parametrize("norm_type", [2.0, 1.0, math.inf])
@pytest.mark.parametrize("world_size", [1, 4, 5])
def test_clips_as_one_process_does(world_size: int, norm_type: float) -> None:
    for max_norm in (0.5, 1e3):
        sharded, bias = gradients()
        parameters = [nn.Parameter(torch.zeros_like(g)) for g in (*sharded, bias)]
        for parameter, gradient in zip(parameters, (*sharded, bias), strict=True):
            parameter.grad = gradient
        wanted = nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)
        results = collect(on_ranks, world_size, (max_norm, norm_type), observe=False, timeout=60)
        for norm, _, clipped in results:
            assert norm.item() == pytest.approx(wanted.item(), rel=1e-12)
            assert torch.allclose(clipped, bias, rtol=1e-12)
        for i, gradient in enumerate(sharded):
            found = torch.cat([shards[i] for _, shards, _ in results])
            assert torch.allclose(found, gradient, rtol=1e-12)


def test_a_norm_of_ones_own_is_another() -> None:
    def careless():
        shard = torch.full((1,), 3.0 + dist.get_rank())
        return shard.norm().item(), global_norm([shard]).item()

    assert list(collect(careless, 2, timeout=60)) == [(3.0, 5.0), (4.0, 5.0)]


def test_half_precision_does_not_overflow_and_bad_norms_are_refused() -> None:
    def on_ranks():
        norm = global_norm([torch.full((4,), 300.0, dtype=torch.float16)])
        with pytest.raises(ValueError, match="norm_type = 0, and a norm needs more than 0"):
            global_norm([], norm_type=0)
        return norm.item()

    assert list(collect(on_ranks, 1, timeout=60)) == [600.0]
