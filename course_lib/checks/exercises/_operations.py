"""What an answer computes: its matrix products, the largest tensor it makes, what it keeps."""

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from course_lib.checks.exercise import Finding


class Operations(TorchDispatchMode):
    """Counts the multiplications and additions of matrix products, however they are written.

    Matrix times matrix, matrix times vector, and a product that broadcasts both of its factors. As
    torch's FlopCounterMode does; that one loads torch's compiler at its first operator, which takes
    seconds.

    products: how many there were. largest: the elements of the largest tensor that was made.
    shapes: those of all tensors that were made.
    arrived: the most bytes, at one time, behind tensors into which messages were received.
    """

    def __init__(self) -> None:
        super().__init__()
        self.products = 0
        self.largest = 0
        self.shapes: set[tuple[int, ...]] = set()
        self.arrived = 0
        self._received: list[weakref.ref] = []  # to storages

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func.name() in _RECEIVES:
            self._receive(args[0])
        result = func(*args, **(kwargs or {}))
        given = [arg for arg in args if isinstance(arg, torch.Tensor)]
        name = func.name().removeprefix("aten::").partition(".")[0]
        if name in _MATRIX_PRODUCTS:
            left, right = given[-2:]
            self.products += 2 * left.numel() * right.shape[-1]
        elif name in _VECTOR_PRODUCTS:
            self.products += 2 * given[-2].numel()
        elif name == "mul" and all(result.numel() > factor.numel() for factor in given[-2:]):
            self.products += 2 * result.numel()  # and the sum behind it
        if isinstance(result, torch.Tensor):
            self.largest = max(self.largest, result.numel())
            self.shapes.add(tuple(result.shape))
        return result

    def _receive(self, tensors: list[torch.Tensor]) -> None:
        self._received += [weakref.ref(tensor.untyped_storage()) for tensor in tensors]
        living = {id(storage): storage for each in self._received if (storage := each())}
        self._received = [weakref.ref(storage) for storage in living.values()]
        self.arrived = max(self.arrived, sum(s.nbytes() for s in living.values()))


_RECEIVES = frozenset({"c10d::recv_", "c10d::recv_any_source_"})
_MATRIX_PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm"})
_VECTOR_PRODUCTS = frozenset({"mv", "addmv", "dot", "vdot"})


def computed_in_vain(why: str, rank: int, most: int, products: int) -> Finding:
    """On a rank whose numbers and traffic are right, more was computed than there is to do."""
    return Finding(
        f"the numbers and the traffic are right, but {why}",
        rank,
        expected=f"{most} multiplications and additions at most in matrix products",
        got=f"{products}",
    )
