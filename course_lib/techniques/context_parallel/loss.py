"""The loss of a sequence whose tokens are on several ranks, unevenly.

The mean is over all tokens that count, wherever they are. The mean of the ranks' means would give
more weight to the tokens of a rank with few, and a rank whose tokens are all padding has no mean.
So the ranks add up two numbers, the sum of the losses and how many there are.

Gradients follow the convention of data parallelism, which averages them: a rank's are n times what
its tokens contribute to the gradients of the mean. Averaged over the n ranks, and over replicas
too where there are some, they are those of one process.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import once_differentiable
from torch.profiler import record_function

from course_lib.techniques.collectives.fusion import fused_all_reduce

IGNORED = -100  # the target that torch's cross_entropy leaves out


def context_parallel_loss(
    logits: torch.Tensor, targets: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """Mean cross-entropy over the targets of all ranks that are not IGNORED; the same on each.

    logits (B, T_r, V), targets (B, T_r). Not a number if no target counts, as in one process.
    """
    losses = F.cross_entropy(
        logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return token_mean(losses, targets.flatten(), group)


def token_mean(
    losses: torch.Tensor, targets: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    """The same from the losses of the tokens (...), 0 for those whose target (...) is IGNORED."""
    return _TokenMean.apply(losses.sum(), (targets != IGNORED).sum(), group)


class _TokenMean(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, total: torch.Tensor, count: torch.Tensor, group: dist.ProcessGroup | None
    ) -> torch.Tensor:
        both = torch.stack([total.double(), count.double()])
        with record_function("loss: all-reduce"):
            dist.all_reduce(both, group=group)
        ctx.of_a_token = dist.get_world_size(group) / both[1]
        return (both[0] / both[1]).to(total.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        return (gradient * ctx.of_a_token).to(gradient.dtype), None, None


def average_gradients(module: nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Average `.grad` of all parameters over `group`, in one message: after backward, in place."""
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    with record_function("context parallel: gradients"), torch.no_grad():
        fused_all_reduce(gradients, group=group)
        for gradient in gradients:
            gradient /= dist.get_world_size(group)
