"""Keys: every parameter element has a number, and ranges of numbers are pushed and pulled.

    parameters        embedding (6, 2)      weight (3, 2)     bias (3,)
    keys              0 ................ 11  12 ........ 17   18 .. 20

All parameters stand in one line, in the order of the model, a tied one once. A server then owns
ranges of keys and need not know where a tensor begins, and a message names a range once instead of
a key for every value. Frozen parameters have keys as well: workers have to start with equal ones.

Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014, section 3.2.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, order=True)
class KeyRange:
    """The keys start, start + 1, ..., stop - 1."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def overlap(self, other: "KeyRange") -> "KeyRange":
        """The keys in both; it has length 0 where there are none."""
        start = max(self.start, other.start)
        return KeyRange(start, max(start, min(self.stop, other.stop)))


def overlaps(some: Iterable[KeyRange], others: Iterable[KeyRange]) -> list[KeyRange]:
    """The keys that are in one of `some` and in one of `others`, in ascending order."""
    some, others = sorted(some), sorted(others)
    found, i, j = [], 0, 0
    while i < len(some) and j < len(others):
        if len(both := some[i].overlap(others[j])):
            found.append(both)
        if some[i].stop <= others[j].stop:
            i += 1
        else:
            j += 1
    return found


def joined(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """Ascending ranges with neighbours made one."""
    whole: list[KeyRange] = []
    for keys in ranges:
        start = whole.pop().start if whole and whole[-1].stop == keys.start else keys.start
        whole.append(KeyRange(start, keys.stop))
    return whole


def count(ranges: Iterable[KeyRange]) -> int:
    """How many keys there are in `ranges`."""
    return sum(map(len, ranges))


class Layout:
    """Where each parameter lies in the line of keys.

    Workers read gradients from these parameters and write pulled values to them; a server needs
    only their sizes, so its model may be on the device "meta". Raises `ValueError` if there are no
    parameters, or some of several dtypes: a message has one.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        self.parameters = list(dict.fromkeys(parameters))
        dtypes = sorted({str(p.dtype) for p in self.parameters})
        if len(dtypes) != 1:
            raise ValueError(f"the keys need parameters of one dtype, and there are {dtypes}")
        self.dtype = self.parameters[0].dtype
        self.ranges: list[KeyRange] = []
        for parameter in self.parameters:
            self.ranges.append(KeyRange(self.total, self.total + parameter.numel()))

    @property
    def total(self) -> int:
        """The number of keys."""
        return self.ranges[-1].stop if self.ranges else 0

    @property
    def everything(self) -> list[KeyRange]:
        """All keys as one range."""
        return [KeyRange(0, self.total)]

    @property
    def trainable(self) -> list[KeyRange]:
        """The keys of what is not frozen."""
        pairs = zip(self.parameters, self.ranges, strict=True)
        return joined(own for parameter, own in pairs if parameter.requires_grad)

    def with_gradient(self) -> list[KeyRange]:
        """The keys of the parameters that have a gradient."""
        pairs = zip(self.parameters, self.ranges, strict=True)
        return joined(own for parameter, own in pairs if parameter.grad is not None)

    def gradients(self, ranges: Sequence[KeyRange]) -> torch.Tensor:
        """The gradients of these keys, one after the other; no gradient counts as zeros."""
        return self._gather(
            [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters], ranges
        )

    def values(self, ranges: Sequence[KeyRange]) -> torch.Tensor:
        """The parameters of these keys, one after the other."""
        return self._gather([p.detach() for p in self.parameters], ranges)

    def zero_gradients(self) -> None:
        """Forget all gradients, as `zero_grad` does."""
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def write(self, ranges: Sequence[KeyRange], values: torch.Tensor) -> None:
        """Put `values`, in the order of `ranges`, into the parameters."""
        for parameter, own in zip(self.parameters, self.ranges, strict=True):
            flat = parameter.detach().reshape(-1)  # a copy where memory is not in order
            offset = 0
            for keys in ranges:
                both = own.overlap(keys)
                source = offset + both.start - keys.start
                flat[both.start - own.start : both.stop - own.start] = values[
                    source : source + len(both)
                ]
                offset += len(keys)
            parameter.copy_(flat.view_as(parameter))

    def _gather(self, tensors: list[torch.Tensor], ranges: Sequence[KeyRange]) -> torch.Tensor:
        parts = [tensors[0].new_empty(0)]
        for keys in ranges:
            for tensor, own in zip(tensors, self.ranges, strict=True):
                both = own.overlap(keys)
                parts.append(tensor.reshape(-1)[both.start - own.start : both.stop - own.start])
        return torch.cat(parts)
