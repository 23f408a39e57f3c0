"""Mixed precision: compute in 16 bits, keep the weights that the optimizer steps in 32.

              sign, exponent, mantissa   smallest step at 1   smallest normal number   largest
    fp32      1, 8, 23                   2^-23                1.2e-38                  3.4e38
    bf16      1, 8, 7                    2^-7                 1.2e-38                  3.4e38
    fp16      1, 5, 10                   2^-10                6.1e-5                   65504

Both halves lose small updates: in bf16, 1 - 0.001 is 1. So a master copy in fp32 adds them up, and
the model gets it rounded after each step. fp16 also loses small gradients, so the loss is scaled up
before backward and the gradients down after it; bf16 has the range of fp32 and needs no scaling.

Bytes per parameter with Adam: 2 + 2 in the model, 4 + 4 + 4 in the optimizer.

Micikevicius et al., "Mixed Precision Training", ICLR 2018, section 3.

Needs of its neighbours: make_optimizer.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .make_optimizer import MakeOptimizer


class LossScaler:
    """Multiplies the loss by a power of two, as large as the gradients allow.

    A step with a gradient that is not finite is left out, and halves the scale; after
    `patience` good steps in a row it doubles.
    """

    def __init__(self, scale: float = 2.0**16, patience: int = 2000) -> None:
        if scale <= 0 or patience < 1:
            raise ValueError(f"scale = {scale}, more than 0, and patience = {patience}, at least 1")
        self.scale, self.patience, self.good_steps = float(scale), patience, 0

    def scaled(self, loss: torch.Tensor) -> torch.Tensor:
        return loss * self.scale

    def unscale_(
        self, gradients: Iterable[torch.Tensor], group: dist.ProcessGroup | None = None
    ) -> bool:
        """Divide `gradients` in place; whether all of them are finite, and adapt the scale.

        With `group`, all its ranks have to have finite gradients, so that all step or none does.
        """
        gradients = list(gradients)
        finite = torch.tensor(1, dtype=torch.uint8)
        for gradient in gradients:
            gradient.div_(self.scale)
            finite = finite.to(gradient.device) * gradient.isfinite().all()
        if group is not None:
            dist.all_reduce(finite, op=dist.ReduceOp.MIN, group=group)
        good = bool(finite)
        self.good_steps = self.good_steps + 1 if good else 0
        if not good:
            self.scale /= 2
        elif self.good_steps == self.patience:
            self.scale, self.good_steps = self.scale * 2, 0
        return good


class MixedPrecision:
    """Trains `model` in `dtype`, with an optimizer over fp32 master weights.

        mixed = MixedPrecision(model, lambda groups: torch.optim.AdamW(groups, lr=1e-3))
        for each batch: mixed.zero_grad(); mixed.backward(loss(model, batch)); mixed.step()

    Converts the model's parameters, from the precision they have; the masters keep what rounding
    takes. Inputs and buffers stay as they are. `param_groups` are torch's, of model parameters.
    Under ZeRO the masters are sharded: see `master_dtype` there.

    scaler: for fp16; None leaves the loss as it is.
    """

    def __init__(
        self,
        model: nn.Module,
        make_optimizer: MakeOptimizer,
        dtype: torch.dtype = torch.bfloat16,
        *,
        scaler: LossScaler | None = None,
        param_groups: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        trainable = [p for p in model.parameters() if p.requires_grad]
        self.masters = {p: nn.Parameter(p.detach().float().clone()) for p in trainable}
        groups = [{"params": trainable}] if param_groups is None else param_groups
        self.optimizer = make_optimizer(
            [{**group, "params": [self.masters[p] for p in group["params"]]} for group in groups]
        )
        self.scaler = scaler
        for parameter in model.parameters():
            parameter.data = parameter.detach().to(dtype)

    def backward(self, loss: torch.Tensor) -> None:
        """`loss.backward()`, scaled if there is a scaler."""
        loss = loss.float()
        (self.scaler.scaled(loss) if self.scaler else loss).backward()

    @torch.no_grad()
    def step(self) -> bool:
        """Step the masters, and round them to the model; False if gradients were not finite."""
        for parameter, master in self.masters.items():
            master.grad = None if parameter.grad is None else parameter.grad.to(master.dtype)
        gradients = [m.grad for m in self.masters.values() if m.grad is not None]
        stepped = self.scaler is None or self.scaler.unscale_(gradients)
        if stepped:
            self.optimizer.step()
            for parameter, master in self.masters.items():
                parameter.copy_(master)
        for master in self.masters.values():
            master.grad = None
        return stepped

    def zero_grad(self) -> None:
        for parameter in self.masters:
            parameter.grad = None
