"""A step of ZeRO against PyTorch's own: ZeroRedundancyOptimizer, and FSDP2's fully_shard."""

from collections.abc import Callable

import torch
import torch.distributed as dist

from course_lib.models import TinyGPT, batches, tiny_gpt
from course_lib.ranks import collect
from course_lib.techniques.zero1 import Zero1
from course_lib.techniques.zero3 import Zero3
from tests.bench.measurement import Measurement, Row, paired

_PAIRS = 15
_RANKS = (2, 4)
Step = Callable[[], torch.Tensor]


def _model() -> TinyGPT:
    return tiny_gpt(layers=4, hidden=128, seed=0)


def _adamw(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3)


def _step(model, loss_of, optimizer) -> Step:
    """One step on this rank's part of a batch; returns the loss."""
    tokens, targets = next(batches(1, 16 * dist.get_world_size()))
    part = slice(dist.get_rank(), None, dist.get_world_size())
    tokens, targets = tokens[part], targets[part]

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, tokens, targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def _stage_1() -> tuple[Step, Step]:
    from torch.distributed.optim import ZeroRedundancyOptimizer
    from torch.nn.parallel import DistributedDataParallel

    ours, theirs = _model(), DistributedDataParallel(_model())
    optimizer = ZeroRedundancyOptimizer(
        theirs.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3
    )
    return _step(ours, _loss, Zero1(ours, _adamw)), _step(theirs, _loss, optimizer)


def _stage_3() -> tuple[Step, Step]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    ours, theirs = _model(), _model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (theirs.embedding, *theirs.blocks, theirs.head, theirs):
        fully_shard(part, mesh=mesh)
    return (
        _step(ours, _loss, Zero3(ours, _adamw)),
        _step(theirs, _loss, _adamw(theirs.parameters())),
    )


def _loss(model, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    logits = model(tokens)
    return torch.nn.functional.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=-100
    )


def _time(make: Callable[[], tuple[Step, Step]]) -> tuple[float, ...]:
    ours, theirs = make()
    for _ in range(3):
        a, b = ours(), theirs()
        assert torch.allclose(a, b, rtol=1e-4), f"the two do not compute the same: {a}, {b}"
    return paired(ours, theirs, pairs=_PAIRS)


def _peak(make: Callable[[], tuple[Step, Step]]) -> tuple[int, int]:
    """Bytes that a step takes at most, above what lies there before it: of ours and of theirs."""
    found = []
    for step in make():
        step()
        step()
        with torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
        ) as profile:
            step()
        held = most = 0
        for event in profile.profiler.kineto_results.events():
            if event.name() == "[memory]":
                held += event.nbytes()
                most = max(most, held)
        found.append(most)
    return found[0], found[1]


def _measure() -> list[Measurement]:
    measured = []
    for ranks in _RANKS:
        for name, make, limit in (
            ("stage 1, ZeroRedundancyOptimizer", _stage_1, 1.0),
            ("stage 3, fully_shard", _stage_3, 0.8),
        ):
            ratios = collect(_time, ranks, (make,), observe=False, timeout=300)[0]
            measured.append(Measurement(f"{name}, {ranks} ranks", ratios, limit))
        ours, theirs = collect(_peak, ranks, (_stage_3,), observe=False, timeout=300)[0]
        peak = Measurement(f"its peak above the start, {ranks} ranks", (ours / theirs,), limit=1.0)
        measured.append(peak)
    return measured


ROWS = [Row("zero", "a step of ZeRO against PyTorch's own", _measure)]
