"""How far rounding may take a right answer from the exact one.

    nothing             integers, and data that was only moved
    of_sum              a sum that may be added up in any order
    share_of_largest    what a layer computes: a share of the tensor's largest element
    EXACT               a number that a formula gives, as a share of it

All-reduce is not bitwise the serial sum: floating-point addition depends on its order.
"""

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


def share_of_largest(tensor: torch.Tensor, share: float = LAYER) -> torch.Tensor:
    """The same for each element: `share` of the largest. share: 1e-4 suits float32."""
    largest = float(tensor.abs().max()) if tensor.numel() else 0.0
    return torch.full_like(tensor, largest * share)
