"""An argument that is not contiguous is as good as any other, where the contract lets it come.

At every second call, tensors of two dimensions and more come as the transpose of what lies in
memory. (A result in place has its own law, which does the same.)
"""

import torch

from ._law import Call, Law, Watch


def watch(call: Call) -> Watch:
    if call.number % 2 == 1:
        for name, value in call.arguments.items():
            if name != call.contract.in_place and isinstance(value, torch.Tensor):
                call.arguments[name] = _turned(value)
    yield
    return None


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    """The same values and shape, in the memory of the transpose."""
    if tensor.dim() < 2 or tensor.requires_grad:
        return tensor
    axes = list(range(tensor.dim()))[::-1]
    return tensor.permute(axes).contiguous().permute(axes)


LAW = Law(watch, applies=lambda contract: contract.transposed, order=-1)
