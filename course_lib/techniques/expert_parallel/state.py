"""From the experts of one process to those of each rank, and back.

    whole state dict  --load_whole_experts-->  modules on n ranks  --gather_experts-->  the whole

A module that holds some of the experts says so in its `expert_shares`, as one that holds a part of
a matrix does in its `shares` (tensor_parallel.state): the two axes cut other dimensions. To go from
n ranks to another number, gather and load.
"""

import torch
import torch.distributed as dist
from torch import nn

from course_lib.techniques.tensor_parallel.axis import Share, TensorAxis, gather_parts
from course_lib.techniques.tensor_parallel.state import State, load_whole, shares_of


def expert_shares_of(module: nn.Module) -> dict[str, Share]:
    """Which experts this rank has of each parameter that holds some, by its full name."""
    return shares_of(module, "expert_shares")


def load_whole_experts(module: nn.Module, whole: State) -> None:
    """Load this rank's part of the state dict of one process, along both axes. Sends nothing."""
    shares = expert_shares_of(module)
    for name, share in shares.items():
        if name in whole and len(whole[name]) != share.whole:
            raise ValueError(
                f"{name} of one process should hold {share.whole} experts, and holds "
                f"{len(whole[name])}"
            )
    own = {name: shares[name].of(t) if name in shares else t for name, t in whole.items()}
    load_whole(module, own)


def gather_experts(
    module: nn.Module, group: dist.ProcessGroup | None = None
) -> dict[str, torch.Tensor]:
    """The module's state dict with all experts of `group`, on every rank of it."""
    axis, shares = TensorAxis.of(group), expert_shares_of(module)
    return {
        name: gather_parts(tensor, shares[name], axis) if name in shares else tensor.clone()
        for name, tensor in module.state_dict().items()
    }
