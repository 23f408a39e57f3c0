"""A tensor-parallel block's step against the same block under parallelize_module."""

import copy

import torch
import torch.distributed as dist

from course_lib.models.tiny_gpt import Block
from course_lib.ranks import collect
from course_lib.techniques.tensor_parallel import ParallelBlock, load_whole
from tests.bench.measurement import Measurement, Row, paired

_HIDDEN, _HEADS, _BATCH, _TOKENS = 256, 8, 4, 64
_PAIRS = 15
_COLUMNS = ("attention.query", "attention.key", "attention.value", "mlp.up")
_ROWS = ("attention.out", "mlp.down")


def _pytorchs(block: Block) -> torch.nn.Module:
    """The block with its linear layers as DTensors; the norms stay whole, as in ours."""
    from torch.distributed.device_mesh import init_device_mesh  # slow to load, of use only here
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    plan = {name: ColwiseParallel() for name in _COLUMNS}
    plan |= {name: RowwiseParallel() for name in _ROWS}
    parallelize_module(block, init_device_mesh("cpu", (dist.get_world_size(),)), plan)
    block.attention.heads //= dist.get_world_size()
    return block


def _on_each_rank() -> tuple[float, ...]:
    torch.manual_seed(0)
    whole = Block(_HIDDEN, _HEADS)
    x = torch.randn(_BATCH, _TOKENS, _HIDDEN)
    ours = ParallelBlock(_HIDDEN, _HEADS)
    load_whole(ours, whole.state_dict())
    theirs = _pytorchs(copy.deepcopy(whole))

    def step(block: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
        block.zero_grad()
        inputs = x.clone().requires_grad_()
        y = block(inputs)
        y.square().mean().backward()
        return y.detach(), inputs.grad

    for mine, pytorchs in zip(step(ours), step(theirs), strict=True):
        torch.testing.assert_close(mine, pytorchs, rtol=1e-4, atol=1e-5)
    return paired(lambda: step(ours), lambda: step(theirs), pairs=_PAIRS)


def _measure() -> list[Measurement]:
    what = f"block of width {_HIDDEN}, {_BATCH} x {_TOKENS} tokens"
    return [
        Measurement(
            f"{what}, {ranks} ranks",
            collect(_on_each_rank, ranks, observe=False, timeout=300)[0],
            limit=0.9,
        )
        for ranks in (2, 4)
    ]


ROWS = [Row("tensor", "a tensor-parallel block against parallelize_module", _measure)]
