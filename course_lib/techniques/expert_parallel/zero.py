"""ZeRO over the right groups: experts' state is sharded over fewer ranks than the rest.

    all other weights     on all ranks of `data`          sharded over `data`
    experts               on all ranks of `expert_data`   sharded over `expert_data`

So these are two trainings by ZeRO, side by side. With as many ranks in an expert group as in the
data group, each expert is on one rank, and there is nothing left to shard of it.

Each of them averages over its own group. For an expert that is too few: its gradient holds tokens
of all ranks of its expert group. So it is divided by their number when backward makes it.

Stage 3 is left out: it takes parameters apart module by module, whatever group they belong to.
"""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

from course_lib.techniques.make_optimizer import MakeOptimizer
from course_lib.techniques.zero.clipping import clip_grad_norm_
from course_lib.techniques.zero.zero1 import Zero1
from course_lib.techniques.zero.zero2 import Zero2

from .groups import ExpertGroups, equal_start, expert_parameters
from .state import expert_shares_of

_STAGES = {1: Zero1, 2: Zero2}


class ExpertZero:
    """Trains `model`, with state (stage 1) and gradients (stage 2) sharded.

    dense, experts: the two trainings. Each rank calls all methods at the same point.
    """

    def __init__(
        self,
        model: nn.Module,
        make_optimizer: MakeOptimizer,
        groups: ExpertGroups,
        stage: int = 1,
        *,
        master_dtype: torch.dtype | None = None,
    ) -> None:
        if stage not in _STAGES:
            raise ValueError(f"experts are trained by ZeRO's stages 1 and 2, not {stage}")
        equal_start(model, groups)
        self.groups = groups
        ranks = dist.get_world_size(groups.expert)
        for parameter in expert_parameters(model):
            if parameter.requires_grad:
                parameter.register_hook(lambda gradient: gradient / ranks)
        experts = expert_shares_of(model)
        dense = [name for name, _ in model.named_parameters() if name not in experts]
        self.dense, self.experts = (
            _STAGES[stage](part_of(model, names), make_optimizer, group, master_dtype=master_dtype)
            for names, group in ((dense, groups.data), (experts, groups.expert_data))
        )

    def zero_grad(self) -> None:
        self.dense.zero_grad()
        self.experts.zero_grad()

    def step(self) -> None:
        """What the optimizer would do on one device with the gradient of the whole batch."""
        self.dense.step()
        self.experts.step()

    def refresh(self) -> None:
        """Let the model have what the ranks' shards hold."""
        self.dense.refresh()
        self.experts.refresh()

    def clip_grad_norm_(self, max_norm: float) -> torch.Tensor:
        """Scale the average gradient to a global norm of at most `max_norm`; returns the norm.

        Over the ranks of `data`, no element of either part is held twice.
        """
        gradients = []
        for training in (self.dense, self.experts):
            training.reduce_gradients()
            pieces = training.sharded.pieces.values()
            gradients += [piece.grad for piece in pieces if piece.grad is not None]
        device = next(self.dense.model.parameters()).device
        return clip_grad_norm_(gradients, max_norm, self.groups.data, device=device)


def part_of(module: nn.Module, names: Iterable[str]) -> nn.Module:
    """A module with only these parameters of `module`, the same objects under the same names."""
    part = nn.Module()
    for name in names:
        *path, last = name.split(".")
        here = part
        for step in path:
            if not hasattr(here, step):
                here.add_module(step, nn.Module())
            here = here.get_submodule(step)
        here.register_parameter(last, module.get_parameter(name))
    return part
