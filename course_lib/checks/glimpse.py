"""A few numbers of a tensor, as a person would write them down."""

from collections.abc import Mapping

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


def glimpse_inputs(inputs: Mapping[int, torch.Tensor]) -> str:
    """The ranks' inputs, one per line, if they are few and small; else nothing."""
    if len(inputs) > 4 or any(tensor.numel() > _ALL for tensor in inputs.values()):
        return ""
    return "\n".join(f"rank {rank}: {glimpse(tensor)}" for rank, tensor in inputs.items())


def _bracketed(values: torch.Tensor) -> str:
    return "[" + ", ".join(f"{value:.6g}" for value in values.tolist()) + "]"
