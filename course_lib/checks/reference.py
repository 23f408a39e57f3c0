"""What a tensor should hold, computed in one process, and how exactly that is known."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch

from . import tolerance


@dataclass(frozen=True)
class Reference:
    """What a tensor should hold.

    value: float64, or int64 for integers; in the shape that is asked.
    tolerance: how far rounding may take each element (float64, same shape).
    dtype: what the answer should have.
    parts: what each rank put into it, by rank, in the same shape; {} if it is no sum.
    average: whether it is their average.
    """

    value: torch.Tensor
    tolerance: torch.Tensor
    dtype: torch.dtype
    parts: Mapping[int, torch.Tensor] = field(default_factory=dict)
    average: bool = False

    def flat(self, start: int, stop: int) -> "Reference":
        """Elements `start` to `stop` of the flattened reference."""
        return Reference(
            self.value.reshape(-1)[start:stop],
            self.tolerance.reshape(-1)[start:stop],
            self.dtype,
            {rank: part.reshape(-1)[start:stop] for rank, part in self.parts.items()},
            self.average,
        )


def total(inputs: Mapping[int, torch.Tensor], average: bool = False) -> Reference:
    """The sum (or average) of one tensor from each rank, by rank."""
    n = len(inputs)
    dtype = next(iter(inputs.values())).dtype
    parts = {rank: tensor.to(_exact(dtype)) for rank, tensor in inputs.items()}
    stacked = torch.stack(list(parts.values()))
    value, slack = stacked.sum(0), tolerance.of_sum(stacked, dtype)
    if average:
        value, slack = value / n, slack / n
    return Reference(value, slack, dtype, parts, average)


def computed(
    value: torch.Tensor,
    share: float = tolerance.LAYER,
    scale: float = 1.0,
    dtype: torch.dtype | None = None,
) -> Reference:
    """What comes out of many steps, each element right up to rounding.

    share, scale: as in `tolerance.share_of_largest`. dtype: what the answer should have, if not the
    dtype of `value`.
    """
    slack = tolerance.share_of_largest(value, share, scale)
    return Reference(value, slack, dtype or value.dtype)


def moved(tensor: torch.Tensor) -> Reference:
    """Data that was only moved: nothing may differ."""
    return Reference(tensor.to(_exact(tensor.dtype)), tolerance.nothing(tensor), tensor.dtype)


def gradient(leaf: torch.Tensor) -> torch.Tensor:
    """The gradient of a leaf of the reference, which its backward has reached."""
    if leaf.grad is None:
        raise ValueError("backward of the reference has not come to this leaf")
    return leaf.grad


def added(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """The sum of at least one tensor."""
    return torch.stack(list(tensors)).sum(0)


def _exact(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype.is_floating_point else torch.int64
