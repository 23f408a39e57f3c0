"""A mixture of experts instead of a block's MLP, with its experts spread over n ranks.

    x (T, C) --router--> choices, weights
      |-------- dispatch --------> experts of this rank -------- combine -------> + --> y (T, C)
      |---> shared expert: first matrix     GeLU, second matrix ------------------^

Every rank has its own T tokens, all of the router and of the shared expert, and E/n of the experts.
The shared expert serves every token (DeepSeek-V2 and V3), and needs no message. So its first matrix
is computed while rows go out, its second while answers come home, and in backward the same two hide
the gradients' all-to-alls.

The balancing losses belong to the model's loss, and a layer returns only its output. So their
gradient is attached to the output: `AttachLoss` passes y through, and in backward tells the losses
to begin as well. Megatron-LM does the same, since a stage of a pipeline returns one tensor too.

With a tensor axis, its ranks have the same tokens and a part of each expert. f and g
(tensor_parallel.f_and_g) go around dispatch and combine, and another f goes before the weights:
each rank sees a summand of the answers, and so of the weights' gradient.

DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434 (2024), section 2.2.1, and "DeepSeek-V3", arXiv
2412.19437 (2024), section 2.1.2.

Shapes: T tokens of this rank, C hidden size, E experts, n ranks of the group.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from torch.profiler import record_function

from course_lib.techniques.tensor_parallel import ParallelMLP
from course_lib.techniques.tensor_parallel.axis import TensorAxis
from course_lib.techniques.tensor_parallel.f_and_g import (
    CopyToTensorParallel,
    ReduceFromTensorParallel,
)

from .capacity import capacity_of, within_capacity
from .dispatch import (
    Dispatch,
    by_expert,
    plan_dispatch,
    start_combine,
    start_dispatch,
    weighted_sum,
)
from .experts import Experts, tensor_axis
from .load_balancing import BIAS_SPEED, load_balancing_loss, total_counts, update_bias, z_loss
from .router import Router, Routing


class MixtureOfExperts(nn.Module):
    """(..., C) to (..., C): for each token its `top_k` experts of E, and a shared one for all.

    inner: width of an expert, four times C unless given; shared: of the shared expert, 0 for none.
    capacity_factor: room of an expert (capacity.py); None: nothing is dropped.
    balance, z: coefficients of the balancing losses, which are added to the model's in backward.
    group: the ranks that the experts are spread over. balance_group: those whose tokens are
        balanced together, which is all that are trained on one batch.
    tensor_group: the ranks that share each expert, if there are any.

    Of the last call: `routing` without history, `dropped` (choices), `losses` by name, as they are
    before their coefficients.
    load: (E,), the choices of this rank's tokens in training since the last `rebalance`.
    loss_scale: what the model's loss is multiplied by before backward, 1/m with m microbatches.
    """

    load: torch.Tensor
    routing: Routing

    def __init__(
        self,
        hidden: int,
        experts: int,
        *,
        top_k: int = 2,
        inner: int | None = None,
        shared: int = 0,
        gate: str = "softmax",
        capacity_factor: float | None = None,
        balance: float = 0.0,
        z: float = 0.0,
        group: dist.ProcessGroup | None = None,
        balance_group: dist.ProcessGroup | None = None,
        tensor_group: dist.ProcessGroup | None = None,
    ) -> None:
        super().__init__()
        self.axis, self.tensor = TensorAxis.of(group), tensor_axis(tensor_group)
        self.balance_axis = TensorAxis.of(balance_group)
        self.num_experts = experts
        self.router = Router(hidden, experts, top_k, gate)
        self.experts = Experts(experts, hidden, inner, group, tensor_group)
        self.shared = _shared_expert(hidden, shared, tensor_group) if shared else None
        self.capacity_factor, self.balance, self.z = capacity_factor, balance, z
        self.loss_scale = 1.0
        load = torch.zeros(experts, dtype=torch.int64)
        self.register_buffer("load", load, persistent=False)
        self.dropped = 0
        self.losses: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, -2)  # (T, C)
        routing = self.router(tokens)
        plan = self._plan(routing)
        going = start_dispatch(self._copied(tokens), plan)
        if self.shared is not None:
            inner = F.gelu(self.shared.up(tokens))  # while rows go out
        rows = by_expert(going.wait(), plan)
        with record_function("experts"):
            answers = self.experts(rows, plan.per_expert)
        coming = start_combine(answers, plan)
        if self.shared is not None:
            shared = self.shared.down(inner)  # while answers come home
        y = weighted_sum(coming.wait(), plan, self._copied(routing.weights))
        if self.tensor.size > 1:
            y = ReduceFromTensorParallel.apply(y, self.tensor)
        if self.shared is not None:
            y = y + shared
        return self._with_losses(y, routing).view_as(x)

    def rebalance(self, speed: float = BIAS_SPEED) -> None:
        """Move the router's bias by what the experts had since the last time, on all ranks."""
        update_bias(self.router.bias, total_counts(self.load, self.balance_axis.group), speed)
        self.load.zero_()

    def _plan(self, routing: Routing) -> Dispatch:
        kept = None
        if self.capacity_factor is not None:
            tokens, top_k = routing.experts.shape
            capacity = capacity_of(tokens, self.num_experts, top_k, self.capacity_factor)
            kept = within_capacity(routing.experts, self.num_experts, capacity)
            self.dropped = int((~kept).sum())
        return plan_dispatch(routing.experts, self.num_experts, self.axis.group, kept)

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.tensor.size == 1 else CopyToTensorParallel.apply(tensor, self.tensor)

    def _with_losses(self, y: torch.Tensor, routing: Routing) -> torch.Tensor:
        self.routing = routing.detach()
        if self.training:
            self.load += routing.counts
        if not torch.is_grad_enabled():
            return y
        self.losses = {}
        if self.balance:
            counts = total_counts(routing.counts, self.balance_axis.group)
            self.losses["balance"] = load_balancing_loss(routing, counts)
        if self.z:
            self.losses["z"] = z_loss(routing.logits)
        for name, loss in self.losses.items():
            y = AttachLoss.apply(y, loss * getattr(self, name) * self.loss_scale)
            self.losses[name] = loss.detach()
        return y


class AttachLoss(torch.autograd.Function):
    """y as it is; when backward comes by, the scalar `loss` begins its own."""

    @staticmethod
    def forward(ctx, y: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(loss)
        return y.view_as(y)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        (loss,) = ctx.saved_tensors
        return gradient, torch.ones_like(loss)


class SharedExpert(nn.Module):
    """The MLP that serves every token, in two steps: (T, C) to (T, F) to (T, C)."""

    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden)


def _shared_expert(
    hidden: int, inner: int, tensor_group: dist.ProcessGroup | None
) -> SharedExpert | ParallelMLP:
    if tensor_group is None:
        return SharedExpert(hidden, inner)
    return ParallelMLP(hidden, tensor_group, inner=inner)
