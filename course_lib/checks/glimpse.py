"""A few numbers of a tensor, as a person would write them down."""

from collections.abc import Sequence

import torch

_ALL = 9  # elements up to which a tensor is shown whole
_WINDOW = 4


def glimpse(tensor: torch.Tensor, at: int = 0) -> str:
    """All values of a small tensor; of a large one a few from (flat) element `at` on."""
    flat = tensor.reshape(-1)
    if flat.numel() <= _ALL:
        return _bracketed(flat)
    start = max(0, min(at, flat.numel() - _WINDOW))
    return f"elements {start} to {start + _WINDOW - 1}: {_bracketed(flat[start : start + _WINDOW])}"


def glimpse_inputs(inputs: Sequence[torch.Tensor], at: int = 0) -> str:
    """The ranks' inputs, one a line if they are few and small."""
    if len(inputs) <= 4 and inputs[0].numel() <= _ALL:
        return "\n".join(f"rank {rank}: {glimpse(t)}" for rank, t in enumerate(inputs))
    return ""


def _bracketed(values: torch.Tensor) -> str:
    return "[" + ", ".join(f"{value:.6g}" for value in values.tolist()) + "]"
