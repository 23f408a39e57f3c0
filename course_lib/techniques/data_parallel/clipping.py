"""Gradient clipping in data parallel training: once, after the average.

    norm = || mean of the ranks' gradients ||        the same number on every rank
    clipped = gradient * min(1, max_norm / norm)

The norm of an average is not the average of norms. A rank that clips its own gradient before the
all-reduce scales it by a factor of its own, and the result is the gradient of nothing in
particular. After the all-reduce all ranks hold the same gradient, hence the same norm, and need not
exchange anything: what torch has for one process does.
"""

import torch
from torch import nn

from .distributed_data_parallel import DataParallel


def clip_gradients(model: DataParallel, max_norm: float) -> torch.Tensor:
    """Scale all gradients so that their norm together is at most `max_norm`; return what it was.

    Raises RuntimeError inside `no_sync`, where gradients are still the rank's own.
    """
    if not max_norm > 0:
        raise ValueError(f"max_norm = {max_norm} must be more than 0")
    if not model.synchronizing:
        raise RuntimeError(
            "inside no_sync the gradients are this rank's own: clip after the backward that "
            "averages them"
        )
    return nn.utils.clip_grad_norm_(model.names, max_norm)
