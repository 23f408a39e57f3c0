"""What a rank holds of a model under ZeRO, by names that do not depend on stage and world size.

model/NAME              elements of a parameter, in the precision of its master; or a buffer
state/NAME/ENTRY        of what the optimizer keeps for each element, such as exp_avg
scalar/NAME/ENTRY       what it keeps once per parameter, such as the number of steps
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from course_lib.techniques.zero.flat_shards import FlatShards
from course_lib.techniques.zero.zero1 import Zero1
from course_lib.techniques.zero.zero2 import Zero2
from course_lib.techniques.zero.zero3 import Zero3

from .dcp_planners import Piece

Zero = Zero1 | Zero2 | Zero3


def names_of(model: nn.Module) -> dict[nn.Parameter, str]:
    """The name of each parameter; of a tied one, its first."""
    return {parameter: name for name, parameter in model.named_parameters()}


def shapes_of(zero: Zero) -> dict[str, list[int]]:
    """The whole shapes of all parameters and persistent buffers, by name."""
    names = names_of(zero.model)
    shapes = {name: list(tensor.shape) for name, tensor in _replicated(zero).items()}
    for flat, _ in _sharded(zero):
        for parameter, shape in zip(flat.parameters, flat.shapes, strict=True):
            shapes[names[parameter]] = list(shape)
    return shapes


def own_parameters(zero: Zero) -> dict[str, Piece]:
    """This rank's pieces of the parameters; on rank 0 also what all ranks have a copy of."""
    names, pieces = names_of(zero.model), {}
    for flat, shard in _sharded(zero):
        for parameter, held, tensor, size in zip(
            flat.parameters, flat.ranges, flat.pieces(shard), flat.sizes, strict=True
        ):
            if held.numel:
                pieces[f"model/{names[parameter]}"] = Piece(tensor, held.offset, size)
    if dist.get_rank(zero.group) == 0:
        pieces |= whole_parameters(zero)
    return pieces


def whole_parameters(zero: Zero) -> dict[str, Piece]:
    """Flat copies of what all ranks have a copy of: buffers, and before stage 3 frozen weights."""
    return {
        f"model/{name}": Piece(tensor.detach().flatten().clone(), 0, tensor.numel())
        for name, tensor in _replicated(zero).items()
    }


def set_whole_parameters(zero: Zero, values: Mapping[str, torch.Tensor]) -> None:
    """Take over `values` of any shape, by the keys of `whole_parameters`."""
    for name, tensor in _replicated(zero).items():
        tensor.detach().copy_(values[f"model/{name}"].view(tensor.shape))


def own_state(zero: Zero) -> dict[str, Piece]:
    """This rank's part of the optimizer's state. Who has an element 0 has the scalars."""
    pieces: dict[str, Piece] = {}
    for parameter, name, held, size in _trained(zero):
        state = zero.optimizer.state.get(zero.sharded.pieces[parameter], {})
        for entry, value in state.items():
            if not isinstance(value, torch.Tensor):
                continue  # SGD without momentum notes that it has none
            if value.dim():
                pieces[f"state/{name}/{entry}"] = Piece(value, held.offset, size)
            elif held.offset == 0:
                pieces[f"scalar/{name}/{entry}"] = Piece(value.view(1), 0, 1)
    return pieces


def room_for_state(zero: Zero, dtypes: Mapping[str, torch.dtype]) -> dict[str, Piece]:
    """Tensors to fill for this rank's part of a state that has the entries of `dtypes`."""
    room: dict[str, Piece] = {}
    own = {name: (held, size) for _, name, held, size in _trained(zero)}
    for key, dtype in dtypes.items():
        kind, name, _ = split(key)
        if kind == "model" or name not in own:
            continue
        held, size = own[name]
        if kind == "scalar":
            room[key] = Piece(torch.empty(1, dtype=dtype), 0, 1)
        else:
            device = zero.sharded.shards[0].device
            empty = torch.empty(held.numel, dtype=dtype, device=device)
            room[key] = Piece(empty, held.offset, size)
    return room


def set_state(zero: Zero, pieces: Mapping[str, Piece], options: Sequence[Mapping]) -> None:
    """Replace the optimizer's state by `pieces`, and the options of its groups."""
    state = zero.optimizer.state
    state.clear()
    parameters = {name: parameter for parameter, name, _, _ in _trained(zero)}
    for key, piece in pieces.items():
        kind, name, entry = split(key)
        tensor = piece.tensor.view(()) if kind == "scalar" else piece.tensor
        state[zero.sharded.pieces[parameters[name]]][entry] = tensor
    for group, saved in zip(zero.optimizer.param_groups, options, strict=True):
        group.update(saved)


def groups_of(zero: Zero) -> list[dict[str, Any]]:
    """The optimizer's groups: {"params": names, "options": all else}."""
    names = names_of(zero.model)
    return [
        {
            "params": [names[parameter] for parameter in parameters],
            "options": {key: value for key, value in group.items() if key != "params"},
        }
        for parameters, group in zip(zero.sharded.grouped, zero.optimizer.param_groups, strict=True)
    ]


def split(key: str) -> tuple[str, str, str]:
    """(kind, name of the parameter, entry of the state or "")."""
    kind, name, *entry = key.split("/")
    return kind, name, "".join(entry)


def _sharded(zero: Zero) -> list[tuple[FlatShards, torch.Tensor]]:
    return [*zip(zero.sharded.flats, zero.sharded.masters, strict=True), *zero.frozen]


def _replicated(zero: Zero) -> dict[str, torch.Tensor]:
    sharded = {parameter for flat, _ in _sharded(zero) for parameter in flat.parameters}
    persistent = zero.model.state_dict().keys()
    parameters = {n: p for n, p in zero.model.named_parameters() if p not in sharded}
    return parameters | {n: b for n, b in zero.model.named_buffers() if n in persistent}


def _trained(zero: Zero) -> Iterator[tuple]:
    """(parameter, name, held, elements) of those that this rank's optimizer has a piece of."""
    names = names_of(zero.model)
    for flat in zero.sharded.flats:
        for parameter, held, size in zip(flat.parameters, flat.ranges, flat.sizes, strict=True):
            if held.numel:
                yield parameter, names[parameter], held, size
