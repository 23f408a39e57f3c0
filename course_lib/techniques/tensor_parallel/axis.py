"""The ranks that share one layer, and which part of a matrix each of them holds.

A dimension of V rows is cut into ranges, one for each rank in turn. Where the number of ranks does
not divide V, and uneven ranges are allowed, they differ by one row at most:

    V = 10 over 4 ranks    rows 0-1, 2-4, 5-6, 7-9
"""

from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
import torch.nn.functional as F


@dataclass(frozen=True)
class TensorAxis:
    """A process group seen from one of its ranks: its `size` t, and its group rank `rank`."""

    group: dist.ProcessGroup | None
    size: int
    rank: int

    @classmethod
    def of(cls, group: dist.ProcessGroup | None) -> "TensorAxis":
        """`group` (None: the default group) as this rank sees it."""
        rank = dist.get_rank(group)
        if rank < 0:
            raise ValueError(
                f"rank {dist.get_rank()} of {dist.get_world_size()} is not in the group that it "
                "should share layers with"
            )
        return cls(group, dist.get_world_size(group), rank)

    def __deepcopy__(self, memo: dict) -> "TensorAxis":
        # A copied module stays in the same group of processes; a group itself cannot be copied.
        return self

    def all_reduce(
        self, tensor: torch.Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM
    ) -> torch.Tensor:
        """Reduce over the axis, in place: for tensors that nobody else holds."""
        if self.size > 1:
            dist.all_reduce(tensor, op, group=self.group)
        return tensor


@dataclass(frozen=True)
class Share:
    """Part `index` of `parts` of the `whole` elements along dimension `dim` of a parameter."""

    dim: int
    whole: int
    parts: int
    index: int

    @property
    def start(self) -> int:
        return self.index * self.whole // self.parts

    @property
    def stop(self) -> int:
        return (self.index + 1) * self.whole // self.parts

    @property
    def size(self) -> int:
        return self.stop - self.start

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """This part of the whole `tensor`: a view."""
        return tensor.narrow(self.dim, self.start, self.size)


def even_share(axis: TensorAxis, dim: int, whole: int, what: str) -> Share:
    """Equal parts along `dim`, one for each rank; `what` names the elements for the error."""
    if whole % axis.size:
        raise ValueError(f"{whole} {what} cannot be cut into {axis.size} equal parts, one per rank")
    return Share(dim, whole, axis.size, axis.rank)


def uneven_share(axis: TensorAxis, dim: int, whole: int, what: str) -> Share:
    """Parts that differ by one element at most; every rank has at least one."""
    if whole < axis.size:
        raise ValueError(f"{whole} {what} are too few for {axis.size} ranks")
    return Share(dim, whole, axis.size, axis.rank)


def require_size(found: int, wanted: int, what: str) -> None:
    """Refuse a tensor of another size before anything is sent."""
    if found != wanted:
        raise ValueError(f"{what} should be {wanted}, and is {found}")


def gather_parts(part: torch.Tensor, share: Share, axis: TensorAxis) -> torch.Tensor:
    """The whole tensor, on every rank, from each rank's `part` of it.

    Parts of unequal size travel padded to the largest. Where several neighbouring ranks hold the
    same part, it is taken from the first of them.
    """
    if axis.size == 1:
        return part.clone()
    largest = -(-share.whole // share.parts)
    padded = F.pad(part.movedim(share.dim, -1), (0, largest - share.size)).contiguous()
    arrived = [torch.empty_like(padded) for _ in range(axis.size)]
    dist.all_gather(arrived, padded, group=axis.group)
    sizes = [replace(share, index=index).size for index in range(share.parts)]
    holders = arrived[:: axis.size // share.parts]
    trimmed = [tensor[..., :size] for tensor, size in zip(holders, sizes, strict=True)]
    return torch.cat(trimmed, dim=-1).movedim(-1, share.dim).contiguous()
