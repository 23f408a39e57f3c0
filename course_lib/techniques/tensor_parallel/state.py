"""From the weights of one process to shards, and back.

A module that holds a part of a parameter says so in its `shares`: {name: Share}. All other
parameters are whole on every rank. From this follow all conversions:

    whole state dict  --load_whole-->  modules on t ranks  --gather_whole-->  whole state dict
                                          |       ^
                             sharded_state|       |load_sharded      t files, no communication
                                          v       |
    whole state dict  <----merge----   t sharded states

To go from t ranks to another number, merge and load the whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from .axis import Share, TensorAxis, gather_parts

State = Mapping[str, torch.Tensor]


def shares_of(module: nn.Module, attribute: str = "shares") -> dict[str, Share]:
    """The share of every parameter that is split, by its full name.

    attribute: where its module says so. Those of another axis than the tensor axis have a name of
        their own.
    """
    return {
        f"{path}.{name}" if path else name: share
        for path, part in module.named_modules(remove_duplicate=False)
        for name, share in getattr(part, attribute, {}).items()
    }


def load_whole(module: nn.Module, whole: State) -> None:
    """Load this rank's part of the state dict of one process. Sends nothing."""
    shares, own = shares_of(module), module.state_dict()
    _require_names(own, whole)
    for name, tensor in own.items():
        wanted = _whole_shape(tensor, shares.get(name))
        if tuple(whole[name].shape) != wanted:
            raise ValueError(
                f"{name} of one process should have shape {wanted}, and has "
                f"{tuple(whole[name].shape)}"
            )
    parts = {n: shares[n].of(t) if n in shares else t for n, t in whole.items()}
    module.load_state_dict(parts)


def gather_whole(
    module: nn.Module, group: dist.ProcessGroup | None = None
) -> dict[str, torch.Tensor]:
    """The state dict that the module would have in one process, on every rank of `group`."""
    axis, shares = TensorAxis.of(group), shares_of(module)
    for name, share in shares.items():
        if axis.size % share.parts:
            raise ValueError(
                f"{name} is cut into {share.parts} parts, and the group has {axis.size} ranks"
            )
    return {
        name: gather_parts(tensor, shares[name], axis) if name in shares else tensor.clone()
        for name, tensor in module.state_dict().items()
    }


def sharded_state(module: nn.Module, group: dist.ProcessGroup | None = None) -> dict[str, Any]:
    """What this rank saves: its tensors, and which part of what they are. Plain data.

    The tensors are those of the module, not copies.
    """
    axis = TensorAxis.of(group)
    shares = {name: asdict(share) for name, share in shares_of(module).items()}
    return {
        "size": axis.size,
        "rank": axis.rank,
        "shares": shares,
        "tensors": dict(module.state_dict()),
    }


def load_sharded(
    module: nn.Module, saved: Mapping[str, Any], group: dist.ProcessGroup | None = None
) -> None:
    """Load what the same rank of a group of the same size saved. Sends nothing."""
    axis = TensorAxis.of(group)
    if saved["size"] != axis.size:
        raise ValueError(
            f"this state was saved by one of {saved['size']} ranks, and the group has {axis.size}: "
            "merge the states of all and load the whole"
        )
    if saved["rank"] != axis.rank:
        raise ValueError(
            f"this state was saved by rank {saved['rank']} of its group, and this is rank "
            f"{axis.rank}"
        )
    own, tensors = module.state_dict(), saved["tensors"]
    _require_names(own, tensors)
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            raise ValueError(
                f"this rank's part of {name} has shape {tuple(tensor.shape)}, the saved one "
                f"{tuple(tensors[name].shape)}"
            )
    module.load_state_dict(tensors)


def merge(saved: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """The state dict of one process from the sharded states of all ranks, in any order."""
    if not saved:
        raise ValueError("0 sharded states cannot be merged; there must be one of every rank")
    by_rank = {state["rank"]: state for state in saved}
    for state in saved:
        if state["size"] != len(saved) or len(by_rank) != len(saved):
            raise ValueError(
                f"a state of one of {state['size']} ranks is merged with others: "
                f"{len(saved)} states are here, of the ranks {sorted(by_rank)}"
            )
    ordered = [by_rank[rank] for rank in range(len(saved))]
    whole = {}
    for name, tensor in ordered[0]["tensors"].items():
        if name not in ordered[0]["shares"]:
            whole[name] = tensor.clone()
            continue
        share = Share(**ordered[0]["shares"][name])
        ranks_a_part = len(saved) // share.parts
        parts = [state["tensors"][name] for state in ordered[::ranks_a_part]]
        whole[name] = torch.cat(parts, dim=share.dim)
    return whole


# ------------------------------------------------------------------------------------------------


def _whole_shape(tensor: torch.Tensor, share: Share | None) -> tuple[int, ...]:
    shape = list(tensor.shape)
    if share is not None:
        shape[share.dim] = share.whole
    return tuple(shape)


def _require_names(own: State, other: State) -> None:
    missing, unknown = sorted(own.keys() - other.keys()), sorted(other.keys() - own.keys())
    if missing or unknown:
        raise ValueError(
            f"the state has {len(other)} parameters and the module {len(own)}; "
            f"missing: {missing}, unknown: {unknown}"
        )
