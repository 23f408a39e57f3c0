"""From a sharded checkpoint to the state dicts of plain torch on one device, and back.

    state = consolidate("run")
    model.load_state_dict(state["model"]); optimizer.load_state_dict(state["optimizer"])

    load_whole(zero, {"model": model.state_dict(), "optimizer": optimizer.state_dict()})

The optimizer on one device has to be built from the same groups of trainable parameters.
"""

import os
import warnings
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed.checkpoint as dcp

from .dcp_planners import LoadPieces, Piece
from .sharded import Saved, check_same_model
from .zero_state import (
    Zero,
    groups_of,
    own_parameters,
    room_for_state,
    set_state,
    set_whole_parameters,
    shapes_of,
    split,
    whole_parameters,
)


def consolidate(path: str | os.PathLike) -> dict[str, Any]:
    """{"model", "optimizer"} of what `save` saved, whole; in one process, without a group."""
    saved = Saved.open(path)
    shapes, groups = saved.manifest["shapes"], saved.manifest["groups"]
    whole = {
        key: Piece(torch.empty(size, dtype=saved.dtypes[key]), 0, size)
        for key, size in saved.sizes.items()
    }
    reader = dcp.FileSystemReader(saved.folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it takes this for a single process, which it is
        dcp.load(whole, storage_reader=reader, planner=LoadPieces(), no_dist=True)
    model = {name: whole[f"model/{name}"].tensor.view(shape) for name, shape in shapes.items()}
    model |= {alias: model[name] for alias, name in saved.manifest["tied"].items()}
    number = {name: i for i, name in enumerate(n for group in groups for n in group["params"])}
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, piece in whole.items():
        kind, name, entry = split(key)
        if kind != "model":
            shape = shapes[name] if kind == "state" else ()
            state.setdefault(number[name], {})[entry] = piece.tensor.view(shape)
    numbered = [
        group["options"] | {"params": [number[name] for name in group["params"]]}
        for group in groups
    ]
    return {"model": model, "optimizer": {"state": state, "param_groups": numbered}}


@torch.no_grad()
def load_whole(zero: Zero, state: Mapping[str, Any]) -> None:
    """Give each rank its pieces of the state dicts of one process, which all ranks have."""
    model, optimizer = state["model"], state["optimizer"]
    shapes, groups = shapes_of(zero), groups_of(zero)
    found = {name: list(tensor.shape) for name, tensor in model.items() if name in shapes}
    counts = [{"params": range(len(group["params"]))} for group in optimizer["param_groups"]]
    ours = [{"params": range(len(group["params"]))} for group in groups]
    check_same_model({"shapes": found, "groups": counts}, {"shapes": shapes, "groups": ours})

    whole = {f"model/{name}": model[name] for name in shapes}
    names = [name for group in groups for name in group["params"]]
    for number, entries in optimizer["state"].items():
        for entry, value in entries.items():
            if isinstance(value, torch.Tensor):
                kind = "state" if value.dim() or entry != "step" else "scalar"
                whole[f"{kind}/{names[number]}/{entry}"] = value
    own = room_for_state(zero, {key: tensor.dtype for key, tensor in whole.items()})
    for key, piece in (own_parameters(zero) | own).items():
        piece.tensor.copy_(whole[key].reshape(-1)[piece.offset :][: piece.tensor.numel()])
    set_whole_parameters(zero, {key: whole[key] for key in whole_parameters(zero)})
    options = [{k: v for k, v in g.items() if k != "params"} for g in optimizer["param_groups"]]
    set_state(zero, own, options)
    zero.refresh()
