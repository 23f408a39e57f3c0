"""16 bits with fp32 masters: what they keep, what is lost without them, and loss scaling."""

from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course_lib.models import batches, tiny_gpt
from course_lib.ranks import collect
from course_lib.techniques.mixed_precision import LossScaler, MixedPrecision
from course_lib.techniques.zero1 import Zero1
from course_lib.techniques.zero2 import Zero2
from course_lib.techniques.zero3 import Zero3


def sgd(groups) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=1e-3)


def adamw(groups) -> torch.optim.Optimizer:
    return torch.optim.AdamW(groups, lr=1e-2)


class One(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self) -> torch.Tensor:
        return self.weight.sum()


def test_masters_add_up_what_bf16_alone_loses() -> None:
    alone, mixed = One().bfloat16(), One()
    plain = sgd(alone.parameters())
    trained = MixedPrecision(mixed, sgd)
    for _ in range(10):
        for model, optimizer in ((alone, plain), (mixed, trained)):
            optimizer.zero_grad()
            model().backward()
            optimizer.step()
    assert alone.weight.item() == 1.0
    assert mixed.weight.dtype == torch.bfloat16
    assert trained.masters[mixed.weight].item() == pytest.approx(0.99)
    assert mixed.weight.item() == pytest.approx(0.99, abs=2**-8)


def test_the_step_is_that_of_fp32_with_the_gradients_of_bf16() -> None:
    model = tiny_gpt(hidden=16, seed=0)
    twin = {name: nn.Parameter(p.detach().clone()) for name, p in model.named_parameters()}
    mixed, oracle = MixedPrecision(model, adamw), adamw(list(twin.values()))
    for tokens, targets in batches(4, 8):
        mixed.zero_grad()
        mixed.backward(model.loss(tokens, targets))
        for name, p in model.named_parameters():
            twin[name].grad = p.grad.float()
        mixed.step()
        oracle.step()
        for name, p in model.named_parameters():
            assert torch.equal(mixed.masters[p], twin[name])
            assert torch.equal(p, twin[name].bfloat16())


def test_it_learns_as_fp32_does() -> None:
    def losses(model, backward, optimizer) -> list[float]:
        found = []
        for tokens, targets in batches(16, 16):
            optimizer.zero_grad()
            loss = model.loss(tokens, targets)
            backward(loss)
            optimizer.step()
            found.append(loss.item())
        return found

    model = tiny_gpt(layers=1, hidden=16, seed=0)
    exact = losses(model, torch.Tensor.backward, adamw(model.parameters()))
    for dtype, scaler in ((torch.bfloat16, None), (torch.float16, LossScaler())):
        model = tiny_gpt(layers=1, hidden=16, seed=0)
        mixed = MixedPrecision(model, adamw, dtype, scaler=scaler)
        found = losses(model, mixed.backward, mixed)
        assert found[-1] < 0.9 * found[0]
        assert found[-1] == pytest.approx(exact[-1], rel=0.1)


def test_fp16_loses_small_gradients_unless_the_loss_is_scaled() -> None:
    def gradient(scaler: LossScaler | None) -> torch.Tensor:
        model = One()
        mixed = MixedPrecision(model, sgd, torch.float16, scaler=scaler)
        mixed.backward(model().float() * 1e-8)
        return model.weight.grad.float()

    assert gradient(None) == 0
    scaler = LossScaler()
    scaled = gradient(scaler)
    assert scaler.unscale_([scaled])
    assert scaled.item() == pytest.approx(1e-8, rel=1e-3)


def test_the_scale_moves_as_torchs_own() -> None:
    ours = LossScaler(2.0**10, patience=2)
    theirs = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    weight = nn.Parameter(torch.ones(1))
    optimizer = sgd([weight])
    for gradient in (1.0, float("inf"), 1.0, 1.0, float("nan"), 1.0, 1.0, 1.0, 1.0):
        theirs.scale(torch.ones(()))
        weight.grad = torch.tensor([gradient])
        before = weight.item()
        theirs.step(optimizer)
        theirs.update()
        stepped = ours.unscale_([torch.tensor([gradient])])
        assert stepped == (weight.item() != before)
        assert ours.scale == theirs.get_scale()


def test_all_ranks_leave_a_step_out_together_and_bad_scales_are_refused() -> None:
    def on_ranks():
        scaler = LossScaler()
        bad = float("inf") if dist.get_rank() == 1 else 1.0
        return scaler.unscale_([torch.tensor([bad])], dist.group.WORLD), scaler.scale

    assert list(collect(on_ranks, 3, timeout=60)) == [(False, 2.0**15)] * 3
    with pytest.raises(ValueError, match="scale = 0, more than 0, and patience = 2000"):
        LossScaler(0)


def test_zero_shards_the_masters_and_steps_them_alike() -> None:
    def trained(model, zero, backward) -> list[torch.Tensor]:
        for tokens, targets in batches(3, 8):
            zero.zero_grad()
            backward(model.loss(tokens, targets))  # of the same batch on each rank
            zero.step()
        with zero.whole_parameters() if isinstance(zero, Zero3) else nullcontext():
            return [p.detach().clone() for p in model.parameters()]

    def on_ranks():
        model = tiny_gpt(hidden=16, seed=0).bfloat16()
        mixed = MixedPrecision(model, adamw)
        wanted = trained(model, mixed, mixed.backward)
        equal = []
        for kind in (Zero1, Zero2, Zero3):
            model = tiny_gpt(hidden=16, seed=0).bfloat16()
            zero = kind(model, adamw, master_dtype=torch.float32)
            found = trained(model, zero, torch.Tensor.backward)
            equal += [torch.equal(a, b) for a, b in zip(found, wanted, strict=True)]
        return equal

    for equal in collect(on_ranks, 2, observe=False, timeout=60):
        assert len(equal) > 3
        assert all(equal)
