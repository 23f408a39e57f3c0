"""The optimizer on the host: the same steps, four bytes per parameter over the bus."""

import torch
import torch.distributed as dist
from torch import nn

from course_lib.models import NASTY_MODELS, batches, tiny_gpt
from course_lib.ranks import collect
from course_lib.techniques.mixed_precision import MixedPrecision
from course_lib.techniques.offload import OffloadedOptimizer
from course_lib.techniques.zero2 import Zero2
from course_lib.techniques.zero3 import Zero3
from tests.techniques.zero_cases import data, mse


def adamw(groups) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=1e-2)


def groups_of(model: nn.Module) -> list[dict]:
    trainable = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": trainable[::2], "weight_decay": 0.0},
        {"params": trainable[1::2], "lr": 2e-2},
    ]


def test_steps_as_mixed_precision_on_one_device_does() -> None:
    model, twin = tiny_gpt(hidden=16, seed=0), tiny_gpt(hidden=16, seed=0)
    mixed = MixedPrecision(twin, adamw, param_groups=groups_of(twin))
    model.bfloat16()
    for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
        mixed.masters[other].data = parameter.detach().float()  # masters that were rounded, too
    offloaded = OffloadedOptimizer(groups_of(model), adamw, bucket_bytes=2**12)
    assert len(offloaded.buckets) > 3
    parameters = sum(p.numel() for p in model.parameters())
    for step, (tokens, targets) in enumerate(batches(4, 8), start=1):
        mixed.zero_grad()
        model.loss(tokens, targets).backward()
        twin.loss(tokens, targets).backward()
        assert all(p.grad is None for p in model.parameters())  # they left during backward
        offloaded.step()
        mixed.step()
        for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.equal(ours, theirs)
        assert offloaded.bus.down == offloaded.bus.up == step * 2 * parameters


def test_frozen_unused_and_tied_parameters_and_two_passes_a_step() -> None:
    for name, make in NASTY_MODELS.items():
        model, twin = make(0).float(), make(0).float()
        trainable = [p for p in model.parameters() if p.requires_grad]
        offloaded = OffloadedOptimizer([{"params": trainable}], adamw)
        plain = adamw([p for p in twin.parameters() if p.requires_grad])
        for x, y in data(3):
            plain.zero_grad()
            for part, target in zip(x.float().chunk(2), y.float().chunk(2), strict=True):
                mse(model, part, target).backward()
                mse(twin, part, target).backward()
            offloaded.step()
            plain.step()
            for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
                assert torch.equal(ours, theirs), name


def test_the_device_keeps_two_bytes_a_parameter() -> None:
    model = tiny_gpt(hidden=16, seed=0).bfloat16()
    offloaded = OffloadedOptimizer([{"params": list(model.parameters())}], adamw)
    model.loss(*next(batches(1, 8))).backward()
    offloaded.step()
    on_host = [
        t.untyped_storage().data_ptr()
        for optimizer in offloaded.optimizers
        for master in optimizer.param_groups[0]["params"]
        for t in (master, *optimizer.state[master].values())
    ]
    on_device = {p.untyped_storage().data_ptr(): p.nbytes for p in model.parameters()}
    assert not set(on_host) & set(on_device)
    assert sum(on_device.values()) == 2 * sum(p.numel() for p in model.parameters())


def test_zero_grad_forgets_what_is_on_its_way() -> None:
    model = nn.Linear(2, 1)
    before = model.weight.detach().clone()
    offloaded = OffloadedOptimizer([{"params": list(model.parameters())}], adamw)
    model(torch.ones(1, 2)).sum().backward()
    offloaded.zero_grad()
    offloaded.step()
    assert torch.equal(model.weight, before)


def test_zero_steps_its_shards_on_the_host() -> None:
    def on_ranks(kind: type, offload: bool):
        made = []

        def make(groups):
            made.append(OffloadedOptimizer(groups, adamw) if offload else adamw(groups))
            return made[0]

        model = tiny_gpt(hidden=16, seed=dist.get_rank()).bfloat16()
        zero = kind(model, make, master_dtype=None if offload else torch.float32)
        for tokens, targets in batches(3, 8):
            zero.zero_grad()
            model.loss(tokens, targets).backward()
            zero.step()
        own = sum(piece.numel() for piece in zero.sharded.pieces.values())
        counted = (made[0].bus.down, made[0].bus.up) if offload else (6 * own, 6 * own)
        return [shard.clone() for shard in zero.sharded.shards], counted == (6 * own, 6 * own)

    for kind in (Zero2, Zero3):
        runs = [collect(on_ranks, 2, (kind, offload), timeout=60) for offload in (True, False)]
        for (ours, counted), (theirs, _) in zip(*runs, strict=True):
            assert counted
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
