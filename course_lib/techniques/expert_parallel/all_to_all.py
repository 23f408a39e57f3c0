"""The all-to-all that autograd goes through: each rank sends rows to every rank, and backward sends
their gradients home.

    rank 0   [a0 a0 | a1 | a2 a2]            [a0 a0 | b0 | c0]
    rank 1   [b0 | b1 b1 b1 | b2]      -->   [a1 | b1 b1 b1 | c1]
    rank 2   [c0 | c1 | c2]                  [a2 a2 | b2 | c2]

Who sends how much to whom is a matrix of rows; on the way back it is transposed. So the backward of
an all-to-all is an all-to-all with `send` and `receive` exchanged.

The way out is split in two, so that something can be computed while rows travel:

    start(x)   forward: sends             backward: waits for the gradients
    wait()     forward: waits for rows    backward: sends their gradients

Autograd runs backward what forward ran, last first. So what was computed between start and wait has
its backward between the sending of the gradients and the waiting for them, with no more said.

A rank sends rows x width x bytes of an element in each direction, its own rows excepted: they stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable
from torch.profiler import record_function


@dataclass
class Crossing:
    """One all-to-all under way: rows to each rank (`send`) and from each (`receive`)."""

    send: Sequence[int]
    receive: Sequence[int]
    group: dist.ProcessGroup | None
    name: str
    work: dist.Work | None = field(default=None, init=False)
    buffers: tuple[torch.Tensor, torch.Tensor] | None = field(default=None, init=False)

    def begin(self, x: torch.Tensor) -> torch.Tensor:
        """Send the rows of x; returns the tensor that others' rows arrive in."""
        with record_function(f"{self.name}: all-to-all"):
            return self._begin(x, self.send, self.receive)

    def begin_backward(self, gradient: torch.Tensor) -> None:
        """Send the gradients of what arrived."""
        with record_function(f"{self.name} backward: all-to-all"):
            self._begin(gradient, self.receive, self.send)

    def finish(self) -> torch.Tensor:
        """What has arrived."""
        assert self.work is not None  # begun
        assert self.buffers is not None
        self.work.wait()
        _, arrived = self.buffers
        self.work = self.buffers = None
        return arrived

    def _begin(self, x: torch.Tensor, send: Sequence[int], receive: Sequence[int]) -> torch.Tensor:
        sent = x.contiguous()
        arrived = x.new_empty(sum(receive), *x.shape[1:])
        self.work = dist.all_to_all_single(
            arrived, sent, list(receive), list(send), group=self.group, async_op=True
        )
        self.buffers = sent, arrived  # both belong to the message until it is over
        return arrived


class _Start(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor, crossing: Crossing) -> torch.Tensor:
        ctx.crossing = crossing
        return crossing.begin(x)

    @staticmethod
    @once_differentiable
    def backward(ctx, _gradient: torch.Tensor):
        return ctx.crossing.finish(), None


class _Wait(torch.autograd.Function):
    @staticmethod
    def forward(ctx, arrived: torch.Tensor, crossing: Crossing) -> torch.Tensor:
        ctx.crossing = crossing
        crossing.finish()
        return arrived.view_as(arrived)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: torch.Tensor):
        ctx.crossing.begin_backward(gradient)
        return gradient, None  # for the shape only: `_Start` hands on what comes back


@dataclass(frozen=True)
class Pending:
    """Rows on their way: `wait()` once, for the rows that have arrived."""

    arriving: torch.Tensor
    crossing: Crossing | None

    def wait(self) -> torch.Tensor:
        if self.crossing is None:
            return self.arriving
        return _Wait.apply(self.arriving, self.crossing)


def start_all_to_all(
    x: torch.Tensor,
    send: Sequence[int],
    receive: Sequence[int],
    group: dist.ProcessGroup | None = None,
    name: str = "rows",
) -> Pending:
    """Begin `all_to_all`; what is computed before `wait()` hides it."""
    ranks = dist.get_world_size(group)
    if not len(send) == len(receive) == ranks:
        raise ValueError(f"{len(send)} sizes to send and {len(receive)} to receive, {ranks} ranks")
    if sum(send) != len(x):
        raise ValueError(f"{sum(send)} rows should be sent, and there are {len(x)}")
    if ranks == 1:
        return Pending(x, None)
    crossing = Crossing(tuple(send), tuple(receive), group, name)
    return Pending(_Start.apply(x, crossing), crossing)


def all_to_all(
    x: torch.Tensor,
    send: Sequence[int],
    receive: Sequence[int],
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """x (rows sent, ...) to (rows received, ...), both rank by rank.

    send, receive: rows to and from each rank of the group. `receive[s]` here is `send[r]` on s.
    """
    return start_all_to_all(x, send, receive, group).wait()


def all_to_all_bytes(rows: Sequence[int], rank: int, width: int, element_size: int) -> int:
    """Bytes that leave group rank `rank` when it sends `rows[r]` rows to each rank r."""
    return (sum(rows) - rows[rank]) * width * element_size
