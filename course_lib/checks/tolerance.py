"""How far rounding may take a right answer from the exact one.

    nothing             integers, and data that was only moved
    of_sum              a sum that may be added up in any order
    share_of_largest    what a layer computes: a share of the largest number
    EXACT               a number that a formula gives, as a share of it

All-reduce is not bitwise the serial sum: floating-point addition depends on its order.
"""

from collections.abc import Iterable

import torch

EXACT = 1e-9  # some operations in float64
LAYER = 1e-9  # float64 through a layer


def nothing(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros(tensor.shape, dtype=torch.float64)


def of_sum(addends: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """For each element of the sum over the first dimension, when it is added up in `dtype`.

    n-1 additions in any order are off by at most (n-1) u sum|x|, u half the distance from 1 to the
    next number of the dtype (Higham, Accuracy and Stability, section 4.2); twice that is allowed.
    """
    rounding = torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
    return len(addends) * rounding * addends.abs().double().sum(0)


def share_of_largest(
    tensor: torch.Tensor, share: float = LAYER, scale: float = 1.0
) -> torch.Tensor:
    """The same for each element: `share` of the largest, or of `scale` if that is more.

    Rounding goes by what is added up, and not by what is left of it. Where large numbers cancel, as
    in the gradient of a loss at its minimum, right answers hold 1e-17 for 0.

    share: 1e-4 suits float32. scale: the size of what went in, 1 as the cases draw their numbers; 0
    where nothing is added up.
    """
    return torch.full_like(tensor, share * max(scale, largest([tensor])))


def largest(tensors: Iterable[torch.Tensor]) -> float:
    """The size of the largest finite element of all; 0 if there is none."""
    sizes = (tensor[tensor.isfinite()].abs() for tensor in tensors)
    return max((float(each.max()) for each in sizes if each.numel()), default=0.0)
