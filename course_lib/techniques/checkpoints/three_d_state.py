"""The state of a training on a mesh, in the names and shapes of one process, and back.

    model/blocks.0.mlp.up.weight              a parameter, in the precision of the optimizer
    state/blocks.0.mlp.up.weight/exp_avg      what the optimizer keeps for each of its elements
    scalar/blocks.0.mlp.up.weight/step        what it keeps once

Whole tensors do not depend on the mesh, so what one mesh has saved, any other can load. First the
ranks with the same weights, of the data and context axes, put the pieces together that ZeRO has cut
a parameter into, then the tensor axis the parts of a matrix and the expert axis the experts of a
mixture; the pipeline axis has different layers and needs nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist

from course_lib.techniques.expert_parallel import expert_shares_of
from course_lib.techniques.tensor_parallel.axis import Share, TensorAxis, gather_parts
from course_lib.techniques.tensor_parallel.state import shares_of
from course_lib.techniques.three_d.training import ThreeD

from .dcp_planners import Piece
from .zero_state import names_of, own_parameters, own_state, room_for_state, set_state, split

State = Mapping[str, torch.Tensor]


def whole_state(training: ThreeD) -> dict[str, torch.Tensor]:
    """All of this rank's stages, whole. All ranks with these stages call it together."""
    cuts = _cuts(training)
    whole = {}
    for key, flat in _joined(training).items():
        kind, name, entry = split(key)
        if kind != "scalar":
            flat = flat.view(training.shapes[name])
            for shares, axis in cuts:
                if name in shares:
                    flat = gather_parts(flat, shares[name], axis)
        whole["/".join(filter(None, (kind, training.stages.whole_name(name), entry)))] = flat
    for name, buffer in _buffers(training).items():
        whole[f"model/{training.stages.whole_name(name)}"] = buffer.clone()
    return whole


@torch.no_grad()
def load_whole_state(training: ThreeD, whole: State) -> None:
    """Take over what `whole_state` gave, on any mesh: this rank reads its part of `whole`."""
    cuts = _cuts(training)

    def part(key: str, piece: Piece) -> torch.Tensor:
        kind, name, entry = split(key)
        tensor = whole["/".join(filter(None, (kind, training.stages.whole_name(name), entry)))]
        for shares, _ in cuts:
            if kind != "scalar" and name in shares:
                tensor = shares[name].of(tensor)
        return tensor.reshape(-1)[piece.offset :][: piece.tensor.numel()]

    own = _own_parameters(training) | _room_for_state(training, whole)
    for key, piece in own.items():
        piece.tensor.copy_(part(key, piece))
    _set_state(training, {key: piece for key, piece in own.items() if split(key)[0] != "model"})
    for name, buffer in _buffers(training).items():
        buffer.copy_(whole[f"model/{training.stages.whole_name(name)}"])
    for zero in training.zeros:
        zero.refresh()


def names_needed(training: ThreeD) -> set[str]:
    """The names, as in one process, of the parameters and buffers of this rank's stages."""
    return {training.stages.whole_name(name) for name in [*training.shapes, *_buffers(training)]}


def _cuts(training: ThreeD) -> list[tuple[Mapping[str, Share], TensorAxis]]:
    """What is cut along which axis: matrices along the tensor axis, experts along theirs."""
    stages, tensor = training.stages, training.groups["tensor"]
    cuts: list[tuple[Mapping[str, Share], TensorAxis]] = [
        (shares_of(stages), TensorAxis.of(tensor))
    ]
    if training.experts:
        cuts.append((expert_shares_of(stages), TensorAxis.of(training.experts.expert)))
    return cuts


def _buffers(training: ThreeD) -> dict[str, torch.Tensor]:
    """What is saved and not trained, such as the bias of a router: whole on every rank."""
    saved = training.stages.state_dict().keys()
    return {name: b for name, b in training.stages.named_buffers() if name in saved}


def _joined(training: ThreeD) -> dict[str, torch.Tensor]:
    """Flat tensors of this rank's stages, from the pieces of all ranks with the same weights."""
    if not training.zeros:
        own = _own_parameters(training) | _own_state(training)
        return {key: piece.tensor.clone() for key, piece in own.items()}
    joined: dict[str, torch.Tensor] = {}
    for zero in training.zeros:
        own = own_parameters(zero) | own_state(zero)
        own = {key: Piece(p.tensor.detach().cpu(), p.offset, p.numel) for key, p in own.items()}
        everyone: list[dict[str, Piece]] = [{}] * dist.get_world_size(zero.group)
        dist.all_gather_object(everyone, own, group=zero.group)
        for pieces in everyone:
            for key, piece in pieces.items():
                flat = joined.setdefault(key, piece.tensor.new_zeros(piece.numel))
                flat[piece.offset :][: piece.tensor.numel()] = piece.tensor
    return {key: joined[key].to(training.device) for key in sorted(joined)}


# ------------------------------------------------------------------------------------------------
# What zero_state does for ZeRO, for an optimizer that nothing is cut of
# ------------------------------------------------------------------------------------------------


def _own_parameters(training: ThreeD) -> dict[str, Piece]:
    if training.zeros:
        return {
            key: piece for zero in training.zeros for key, piece in own_parameters(zero).items()
        }
    return {
        f"model/{name}": Piece(parameter.detach().view(-1), 0, parameter.numel())
        for name, parameter in training.stages.named_parameters()
    }


def _own_state(training: ThreeD) -> dict[str, Piece]:
    return dict(_whole_entries(training))


def _whole_entries(training: ThreeD) -> Iterator[tuple[str, Piece]]:
    assert training.optimizer is not None  # there is no ZeRO
    for name, parameter in training.stages.named_parameters():
        for entry, value in training.optimizer.state.get(parameter, {}).items():
            kind = "state" if value.dim() else "scalar"
            yield f"{kind}/{name}/{entry}", Piece(value.view(-1), 0, value.numel())


def _room_for_state(training: ThreeD, whole: State) -> dict[str, Piece]:
    back = {training.stages.whole_name(name): name for name in training.shapes}
    dtypes = {}
    for key, tensor in whole.items():
        kind, name, entry = split(key)
        if kind != "model" and name in back:
            dtypes[f"{kind}/{back[name]}/{entry}"] = tensor.dtype
    room: dict[str, Piece] = {}
    if training.zeros:
        for zero in training.zeros:
            room |= room_for_state(zero, dtypes)
        return room
    for key, dtype in dtypes.items():
        kind, name, _ = split(key)
        size = training.shapes[name].numel() if kind == "state" else 1
        device = training.device if kind == "state" else "cpu"
        room[key] = Piece(torch.empty(size, dtype=dtype, device=device), 0, size)
    return room


def _set_state(training: ThreeD, pieces: Mapping[str, Piece]) -> None:
    for zero in training.zeros:
        options = [_options(group) for group in zero.optimizer.param_groups]
        names = set(names_of(zero.model).values())
        own = {key: piece for key, piece in pieces.items() if split(key)[1] in names}
        set_state(zero, own, options)
    if training.optimizer is None:
        return
    parameters = dict(training.stages.named_parameters())
    training.optimizer.state.clear()
    for key, piece in pieces.items():
        kind, name, entry = split(key)
        shape = training.shapes[name] if kind == "state" else ()
        training.optimizer.state[parameters[name]][entry] = piece.tensor.view(shape)


def _options(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}
