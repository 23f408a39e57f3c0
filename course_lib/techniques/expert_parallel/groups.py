"""Which gradients are averaged over whom: experts over fewer ranks than the rest.

4 ranks, each with its own part of the batch, and experts spread over 2 of them:

    rank          0        1        2        3
    experts       0 1      2 3      0 1      2 3
    expert        [-----------]     [-----------]     tokens go to experts: all-to-all
    expert_data   [-----------------]                 0 and 2 hold the same experts,
                           [-----------------]        and so do 1 and 3
    data          [-----------------------------]     hold the same of all other weights

The rest of the model is averaged over `data`, as ever. Averaged there, experts 0 and 1 would be
mixed with 2 and 3: nothing fails, all shapes fit, and every rank ends with the same nonsense. That
is the classic mistake. An expert's gradient is added up over `expert_data` only.

And then divided by the size of `data`, not of `expert_data`: tokens of all ranks of its expert
group have met in an expert already, and each of them brought the gradient of its own rank's mean.

    dense     sum over data / data        expert     sum over expert_data / data

Rajbhandari et al., "DeepSpeed-MoE", ICML 2022 (arXiv 2201.05596).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
import torch.distributed as dist
from torch import nn
from torch.profiler import record_function

from course_lib.techniques.collectives.broadcast import broadcast_tensors
from course_lib.techniques.collectives.fusion import fused_all_reduce
from course_lib.techniques.mesh import Mesh
from course_lib.techniques.zero.clipping import clip_grad_norm_

from .state import expert_shares_of

Group = dist.ProcessGroup | None


@dataclass(frozen=True)
class ExpertGroups:
    """This rank's groups.

    expert: tokens travel in it. expert_data: ranks with the same experts; data: with the same of
    all other weights, which with a context axis are those of both axes. tensor: ranks that share
    each layer, and have the same tokens.
    """

    expert: Group
    expert_data: Group
    data: Group
    tensor: Group

    @classmethod
    def open(cls, mesh: Mesh, opened: Mapping[str, Group] | None = None) -> "ExpertGroups":
        """Open the groups of `mesh`, but for those that are; all ranks of the default group do."""
        mesh.check_world_size(dist.get_world_size())
        groups = dict(opened or {})
        for axis in (field.name for field in fields(cls)):
            if axis not in groups:
                ranks = mesh.groups("data_context" if axis == "data" else axis)
                groups[axis], _ = dist.new_subgroups_by_enumeration(ranks)
        return cls(*(groups[field.name] for field in fields(cls)))


def expert_parameters(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that hold experts, of which each rank of an expert group has others."""
    return [module.get_parameter(name) for name in expert_shares_of(module)]


def dense_parameters(module: nn.Module) -> list[nn.Parameter]:
    """All others, each once: the same on every rank of the data axis."""
    experts = set(expert_parameters(module))
    return [parameter for parameter in module.parameters() if parameter not in experts]


def equal_start(module: nn.Module, groups: ExpertGroups) -> None:
    """Give ranks that hold the same what the first of them has."""
    broadcast_tensors([*dense_parameters(module), *module.buffers()], groups.data)
    broadcast_tensors(expert_parameters(module), groups.expert_data)


def average_gradients(module: nn.Module, groups: ExpertGroups) -> None:
    """Make the gradients those of the mean over all ranks' batches, in place.

    For losses that are means over equally many tokens on each rank, after backward and once before
    the optimizer's step.
    """
    ranks = dist.get_world_size(groups.data)
    for parameters, group, name in (
        (dense_parameters(module), groups.data, "dense gradients"),
        (expert_parameters(module), groups.expert_data, "experts' gradients"),
    ):
        gradients = [p.grad for p in parameters if p.grad is not None]
        with record_function(f"{name}: all-reduce"), torch.no_grad():
            fused_all_reduce(gradients, group=group)
        torch._foreach_div_(gradients, ranks)


def clip_gradients(module: nn.Module, max_norm: float, groups: ExpertGroups) -> torch.Tensor:
    """Scale averaged gradients to a norm of at most `max_norm` over the whole model; returns it.

    The norm counts the experts of all ranks of an expert group, and the rest once.
    """
    experts, dense = (
        [p.grad for p in parameters if p.grad is not None]
        for parameters in (expert_parameters(module), dense_parameters(module))
    )
    return clip_grad_norm_(experts, max_norm, groups.expert, dense)
