"""Which backend and devices a run gets."""

from dataclasses import dataclass

import torch

from course_lib.text import counted


@dataclass(frozen=True)
class DeviceChoice:
    """`backend` for the process group, device type of the ranks, and why, in one line."""

    backend: str
    device: str
    reason: str


def choose_devices(world_size: int, device: str = "auto") -> DeviceChoice:
    """Choose for `device` "auto", "cpu" or "cuda".

    NCCL refuses two ranks on one GPU, so "auto" takes it only with a GPU for every rank, and
    otherwise gloo on the CPU. Asking for "cuda" with too few GPUs is a `ValueError` here, before
    any process starts.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f'device must be "auto", "cpu" or "cuda", not {device!r}')
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device == "cuda" and gpus < world_size:
        raise ValueError(
            f'device="cuda" needs a GPU for each of the {world_size} ranks, and here are {gpus}. '
            'NCCL does not share a GPU between ranks; device="auto" would use gloo on the CPU.'
        )
    if device != "cpu" and gpus >= world_size:
        return DeviceChoice("cpu:gloo,cuda:nccl", "cuda", f"NCCL, one of {gpus} GPUs for each rank")
    if device == "auto" and gpus:
        why = f"gloo on the CPU: {world_size} ranks, but {counted(gpus, 'GPU')}"
    else:
        why = "gloo on the CPU"
    return DeviceChoice("gloo", "cpu", why)
