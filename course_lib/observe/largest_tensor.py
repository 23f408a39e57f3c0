"""How large the largest tensor is that some code makes, for who asks what an algorithm holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass
class Largest:
    """nbytes: of the largest tensor that an operator has returned so far."""

    nbytes: int = 0


class _Look(TorchDispatchMode):
    def __init__(self, largest: Largest) -> None:
        super().__init__()
        self._largest = largest

    def __torch_dispatch__(
        self, func: Any, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor):
                self._largest.nbytes = max(self._largest.nbytes, tensor.nbytes)
        return result


@contextmanager
def largest_tensor() -> Iterator[Largest]:
    """Inside, every tensor that an operator returns is looked at; what was there before is not.

    with largest_tensor() as largest:
        q @ k.mT
    print(largest.nbytes)
    """
    largest = Largest()
    with _Look(largest):
        yield largest
