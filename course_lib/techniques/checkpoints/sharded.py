"""Checkpoints that each rank writes its part of, and that any number of ranks can load.

    save(zero, "run")       every rank its pieces, by torch.distributed.checkpoint
    load(zero, "run")       at any world size, at any stage

    run/checkpoint.json     which folder counts, what is in it, and how long its files are
    run/step-3f0c/          pieces of parameters, and of the optimizer's state

A save writes a new folder, and last of all replaces checkpoint.json, which either happens or does
not. So a save that is interrupted leaves the checkpoint before it whole. All ranks see one file
system.
"""

import json
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from .dcp_planners import LoadPieces, SavePieces
from .zero_state import (
    Zero,
    groups_of,
    own_parameters,
    own_state,
    room_for_state,
    set_state,
    set_whole_parameters,
    shapes_of,
    whole_parameters,
)

MANIFEST, FORMAT = "checkpoint.json", "pieces of flat shards, version 1"


def save(zero: Zero, path: str | os.PathLike) -> None:
    """Save parameters, buffers and the optimizer's state; all ranks of the group call it."""
    path, first = Path(path), dist.get_rank(zero.group) == 0
    token = [f"step-{uuid.uuid4().hex[:8]}"]
    dist.broadcast_object_list(token, group=zero.group, group_src=0)
    folder = path / token[0]
    dcp.save(
        own_parameters(zero) | own_state(zero),
        storage_writer=dcp.FileSystemWriter(folder),
        planner=SavePieces(),
        process_group=zero.group,
    )
    if first:
        names = dict(zero.model.named_parameters(remove_duplicate=False))
        kept = {parameter: name for name, parameter in zero.model.named_parameters()}
        manifest = {
            "format": FORMAT,
            "folder": token[0],
            "files": {file.name: file.stat().st_size for file in sorted(folder.iterdir())},
            "shapes": shapes_of(zero),
            "tied": {name: kept[p] for name, p in names.items() if kept[p] != name},
            "groups": groups_of(zero),
        }
        _replace(path / MANIFEST, json.dumps(manifest, indent=1, default=float))
        for other in path.glob("step-*"):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
    dist.barrier(zero.group)


@torch.no_grad()
def load(zero: Zero, path: str | os.PathLike) -> None:
    """Load what `save` saved, at this world size and stage; all ranks of the group call it.

    Raises ValueError, before anything is changed, if it is not such a checkpoint, not whole, or
    one of another model.
    """
    saved = Saved.open(path)
    check_same_model(saved.manifest, {"shapes": shapes_of(zero), "groups": groups_of(zero)})
    state = room_for_state(zero, saved.dtypes)
    whole = whole_parameters(zero)
    dcp.load(
        own_parameters(zero) | whole | state,
        storage_reader=dcp.FileSystemReader(saved.folder),
        planner=LoadPieces(),
        process_group=zero.group,
    )
    set_whole_parameters(zero, {key: piece.tensor for key, piece in whole.items()})
    set_state(zero, state, [group["options"] for group in saved.manifest["groups"]])
    zero.refresh()


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was found whole.

    dtypes: of every tensor in it, by the keys of `zero_state`; sizes: their elements.
    """

    manifest: dict[str, Any]
    folder: Path
    dtypes: dict[str, torch.dtype]
    sizes: dict[str, int]

    @classmethod
    def open(cls, path: str | os.PathLike) -> "Saved":
        """Raises ValueError, with the reason, unless all of a checkpoint is there."""
        path = Path(path)
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ValueError(f"{path} is not a checkpoint: it has no {MANIFEST}") from None
        except ValueError:
            raise ValueError(f"{path / MANIFEST} is damaged: it is not JSON") from None
        kind = manifest.get("format") if isinstance(manifest, dict) else None
        if kind != FORMAT:
            raise ValueError(f"{path / MANIFEST} is of format {kind!r}, and not {FORMAT!r}")
        folder = path / manifest["folder"]
        for name, size in manifest["files"].items():
            found = (folder / name).stat().st_size if (folder / name).exists() else None
            if found != size:
                has = "is missing" if found is None else f"has {found} bytes"
                raise ValueError(f"{folder / name} {has}, and had {size} when it was saved")
        saved = dcp.FileSystemReader(folder).read_metadata().state_dict_metadata
        tensors = {
            k: about for k, about in saved.items() if isinstance(about, TensorStorageMetadata)
        }
        dtypes = {key: about.properties.dtype for key, about in tensors.items()}
        return cls(manifest, folder, dtypes, {k: about.size[0] for k, about in tensors.items()})


def check_same_model(saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Raise ValueError, naming the first difference, unless parameters and groups are the same."""
    for name in [*own["shapes"], *saved["shapes"]]:
        theirs, ours = (kind["shapes"].get(name) for kind in (saved, own))
        if theirs != ours:
            has = [
                "has no such" if shape is None else f"has shape {shape}" for shape in (theirs, ours)
            ]
            raise ValueError(f"{name}: the checkpoint {has[0]}, and the model {has[1]}")
    theirs, ours = ([group["params"] for group in kind["groups"]] for kind in (saved, own))
    if theirs != ours:
        raise ValueError(
            f"the checkpoint has {[len(group) for group in theirs]} parameters in its groups, and "
            f"the optimizer {[len(group) for group in ours]}, or the same ones in another order"
        )


def _replace(file: Path, text: str) -> None:
    """Let `file` hold `text`, or what it held before if this is interrupted."""
    draft = file.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(file)
