"""Checkpoints of a training on a mesh, by the number of the step, that any mesh can load.

    DIR/step-000050/     whole tensors by their names in one process, see three_d_state
    DIR/saving-000100/   a save that is under way, or was interrupted

A save is written beside the one before and renamed when it is whole; a rename happens or does not.
All nodes see one DIR.
"""

import re
import shutil
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from course_lib.techniques.three_d import ThreeD

from .three_d_state import load_whole_state, names_needed, whole_state

_NAME = re.compile(r"step-(\d+)")


def save(training: ThreeD, folder: Path, step: int) -> None:
    """Save after `step`; all ranks call it. Of what several ranks have, the first saves."""
    state = whole_state(training)
    if any(at for axis, at in training.coordinates.items() if axis != "pipeline"):
        state = {}
    saving, saved = folder / f"saving-{step:06}", folder / f"step-{step:06}"
    dcp.save(state, checkpoint_id=saving)
    if dist.get_rank() == 0:
        shutil.rmtree(saved, ignore_errors=True)  # of a run before this one was resumed
        saving.rename(saved)
        for other in [*folder.glob("step-*"), *folder.glob("saving-*")]:
            if other != saved:
                shutil.rmtree(other, ignore_errors=True)
    dist.barrier()


def resume(training: ThreeD, folder: Path) -> int:
    """Load the newest checkpoint, if there is one; returns the number of steps that are done.

    Raises `ValueError`, on every rank, if it is one of another model.
    """
    found = [newest(folder)]
    dist.broadcast_object_list(found, src=0)  # one rank looks, so that all see the same
    step = found[0]
    if step == 0:
        return 0
    path = folder / f"step-{step:06}"
    tensors = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    names = names_needed(training)
    missing = sorted(names - {key.split("/")[1] for key in tensors})
    if missing:
        raise ValueError(
            f"{path} is a checkpoint of another model: it has {len(tensors)} tensors, and not "
            f"{', '.join(missing)}"
        )
    whole = {
        key: torch.empty(about.size, dtype=about.properties.dtype)
        for key, about in tensors.items()
        if isinstance(about, TensorStorageMetadata) and key.split("/")[1] in names
    }
    dcp.load(whole, checkpoint_id=path)
    load_whole_state(training, whole)
    return step


def newest(folder: Path) -> int:
    """The step of the newest whole checkpoint; 0 if there is none."""
    matches = (_NAME.fullmatch(path.name) for path in folder.glob("step-*"))
    return max((int(match[1]) for match in matches if match), default=0)
