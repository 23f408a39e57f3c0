"""What a tensor should hold, computed in one process.

All-reduce is not bitwise the serial sum: floating-point addition depends on its order. So a sum is
known to within what rounding can do; integers and data that was only moved are known exactly.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch


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
    """The sum (or average) of one tensor from each rank, by rank.

    n-1 additions in any order are off by at most (n-1) u sum|x|, u half the distance from 1 to the
    next number of the dtype (Higham, Accuracy and Stability, section 4.2); twice that is allowed.
    """
    n = len(inputs)
    dtype = next(iter(inputs.values())).dtype
    parts = {rank: tensor.to(_exact(dtype)) for rank, tensor in inputs.items()}
    stacked = torch.stack(list(parts.values()))
    value, size = stacked.sum(0), stacked.abs().double().sum(0)
    if average:
        value, size = value / n, size / n
    rounding = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    return Reference(value, n * rounding * size, dtype, parts, average)


def moved(tensor: torch.Tensor) -> Reference:
    """Data that was only moved: nothing may differ."""
    nothing = torch.zeros(tensor.shape, dtype=torch.float64)
    return Reference(tensor.to(_exact(tensor.dtype)), nothing, tensor.dtype)


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
