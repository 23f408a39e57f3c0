"""Flat shards: many parameters in one buffer, cut into as many equal shards as there are ranks.

    parameters     | weight (2, 3)     | bias (2,) | gain () | padding
    buffer         | 0  1  2  3  4  5  | 6  7      | 8       | 0  0  0     12 elements, 4 ranks
    shards         | rank 0  | rank 1    | rank 2    | rank 3  |

Laid end to end, parameters of any size divide evenly: at most N - 1 zeros are added to a buffer,
not to each parameter, and one collective moves them all. A rank's shard cuts across parameters:
what a shard has of a parameter is called a piece of it, a run of elements that may be empty.

All three stages of ZeRO (Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
Parameter Models", SC 2020, section 5) stand on these.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import nn


@dataclass(frozen=True)
class ShardRange:
    """Where the piece of a parameter lies that a rank's shard has.

    start: its first element in the rank's shard.
    offset: its first element in the flattened parameter.
    numel: its length; 0 if all of the parameter is on other ranks.
    """

    start: int
    offset: int
    numel: int


class FlatShards:
    """The layout of `parameters` (one dtype, one device) in a buffer that `group` shares out.

    numel: elements of all parameters; padded: of the buffer, the next multiple of the ranks;
    shard_numel: of a shard.
    """

    def __init__(
        self, parameters: Sequence[nn.Parameter], group: dist.ProcessGroup | None = None
    ) -> None:
        self.parameters = list(parameters)
        self.group = group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.shapes = [parameter.shape for parameter in self.parameters]
        self.sizes = [parameter.numel() for parameter in self.parameters]
        self.starts = [0, *accumulate(self.sizes)][:-1]
        self.numel = sum(self.sizes)
        self.shard_numel = -(-self.numel // self.ranks)
        self.padded = self.shard_numel * self.ranks
        self.ranges = [self._range(*x) for x in zip(self.starts, self.sizes, strict=True)]

    def _range(self, start: int, size: int) -> ShardRange:
        first = self.rank * self.shard_numel
        begin = min(max(start, first), start + size)
        end = max(min(start + size, first + self.shard_numel), begin)
        return ShardRange(max(begin - first, 0), begin - start, end - begin)

    def zeros(self) -> torch.Tensor:
        """A buffer, (padded,)."""
        return self.parameters[0].new_zeros(self.padded, requires_grad=False)

    def join(self, tensors: Iterable[torch.Tensor]) -> torch.Tensor:
        """A new buffer, (padded,), with copies of `tensors`, one for each parameter."""
        buffer = self.zeros()
        for view, tensor in zip(self.views(buffer), tensors, strict=True):
            view.copy_(tensor.detach())
        return buffer

    def views(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """The parts of a buffer (padded,) in the shapes of the parameters."""
        parts = buffer[: self.numel].split(self.sizes)
        return [part.view(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def own(self, buffer: torch.Tensor) -> torch.Tensor:
        """This rank's shard of a buffer: (padded,) -> a view (shard_numel,)."""
        return buffer.view(self.ranks, self.shard_numel)[self.rank]

    def pieces(self, shard: torch.Tensor) -> list[torch.Tensor]:
        """What this rank's shard (shard_numel,) has of each parameter: 1-D views, some empty."""
        return [shard[part.start :][: part.numel] for part in self.ranges]


def by_kind(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Split `parameters` into those that can share a buffer: one dtype and one device."""
    kinds: dict[tuple, list[nn.Parameter]] = {}
    for parameter in parameters:
        kinds.setdefault((parameter.dtype, parameter.device), []).append(parameter)
    return list(kinds.values())


def present_anywhere(
    parameters: Sequence[nn.Parameter],
    here: Collection[nn.Parameter],
    group: dist.ProcessGroup | None = None,
) -> Callable[[], set[nn.Parameter]]:
    """Begin to find those of `parameters` that have a gradient on any rank; call it for the answer.

    An optimizer leaves a parameter without a gradient alone, but one with a gradient of zeros it
    decays and moves on. In a reduce-scattered buffer the two look alike, so the ranks tell each
    other: one byte for each parameter tensor.

    here: those that have a gradient on this rank.
    """
    if not parameters:
        return set
    marks = [parameter in here for parameter in parameters]
    flags = torch.tensor(marks, dtype=torch.uint8, device=parameters[0].device)
    work = dist.all_reduce(flags, op=dist.ReduceOp.MAX, group=group, async_op=True)

    def found() -> set[nn.Parameter]:
        work.wait()
        return {p for p, flag in zip(parameters, flags.tolist(), strict=True) if flag}

    return found
