"""A few numbers of a tensor, as a person would write them down."""

from collections.abc import Mapping

import torch

_ALL = 9  # elements up to which a tensor is shown whole
_WINDOW = 4


def glimpse(tensor: torch.Tensor, at: int = 0, digits: int = 6) -> str:
    """All values of a small tensor; of a large one a few from (flat) element `at` on."""
    flat = tensor.reshape(-1)
    if flat.numel() <= _ALL:
        return _bracketed(flat, digits)
    start = max(0, min(at, flat.numel() - _WINDOW))
    shown = _bracketed(flat[start : start + _WINDOW], digits)
    return f"elements {start} to {start + _WINDOW - 1}: {shown}"


def glimpses(want: torch.Tensor, got: torch.Tensor, at: int = 0) -> tuple[str, str]:
    """Both, with as many digits as it takes to tell them apart."""
    for digits in (6, 9, 12, 17):
        pair = glimpse(want, at, digits), glimpse(got, at, digits)
        if pair[0] != pair[1]:
            break
    return pair


def glimpse_inputs(inputs: Mapping[int, torch.Tensor]) -> str:
    """The ranks' inputs, one per line, if they are few and small; else nothing."""
    if len(inputs) > 4 or any(tensor.numel() > _ALL for tensor in inputs.values()):
        return ""
    return "\n".join(f"rank {rank}: {glimpse(tensor)}" for rank, tensor in inputs.items())


def _bracketed(values: torch.Tensor, digits: int) -> str:
    return "[" + ", ".join(f"{value:.{digits}g}" for value in values.tolist()) + "]"
