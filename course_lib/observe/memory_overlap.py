"""Which bytes a tensor occupies, and whether two tensors share any: exactly, strides included.

Two chunks of one buffer share a storage and no byte; a column touches every row and not the gaps
between its elements. So storages say too much, and so do first and last byte.
"""

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(slots=True)
class ByteRange:
    """The bytes of a tensor without gaps: `start` up to and without `stop`.

    It knows when the memory was given back, and does not keep it: after that the same addresses
    may belong to another tensor.
    """

    start: int
    stop: int
    _storage: Any  # a weak reference of torch's own kind

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "ByteRange":
        start = tensor.data_ptr()
        weak = tensor.untyped_storage()._weak_ref()
        return cls(start, start + tensor.numel() * tensor.element_size(), weak)

    def alive(self) -> bool:
        return not torch.UntypedStorage._expired(self._storage)

    def meets(self, tensor: torch.Tensor) -> bool:
        """Whether `tensor` occupies any of these bytes."""
        return overlaps(tensor, self.start, self.stop) and self.alive()

    def __del__(self) -> None:
        torch.UntypedStorage._free_weak_ref(self._storage)


def has_memory(tensor: torch.Tensor) -> bool:
    """Whether `tensor` is made of strided elements at an address; sparse and meta ones are not."""
    return tensor.layout is torch.strided and not tensor.is_meta and tensor.numel() > 0


def reach(tensor: torch.Tensor) -> int:
    """Bytes from the first element of a non-empty `tensor` to its end, gaps included."""
    if tensor.is_contiguous():
        return tensor.numel() * tensor.element_size()
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def overlaps(tensor: torch.Tensor, start: int, stop: int) -> bool:
    """Whether any element of `tensor` lies in the bytes from `start` up to and without `stop`."""
    first = tensor.data_ptr()
    size = tensor.element_size()
    if tensor.is_contiguous():
        return first < stop and start < first + tensor.numel() * size
    dims = sorted(
        (stride * size, length)
        for stride, length in zip(tensor.stride(), tensor.shape, strict=True)
        if stride > 0 and length > 1
    )
    return _meet(first, size, dims, start, stop)


def _meet(first: int, size: int, dims: list[tuple[int, int]], start: int, stop: int) -> bool:
    """Elements of `size` bytes at `first` + all sums of multiples of the strides in `dims`."""
    span = sum(stride * (length - 1) for stride, length in dims) + size
    if first >= stop or first + span <= start:
        return False
    if not dims or (first >= start and first + span <= stop):
        return True
    *inner, (stride, length) = dims
    span -= stride * (length - 1)
    # Blocks along the longest stride that can reach into the range at all.
    lowest = max(0, -(-(start - span - first + 1) // stride))
    highest = min(length - 1, (stop - 1 - first) // stride)
    for k in range(lowest, highest + 1):
        block = first + k * stride
        if _meet(block, size, inner, start, stop):
            return True
    return False
