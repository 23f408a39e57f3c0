"""How activations and gradients travel between the ranks of a pipeline.

- **Sends do not wait.** With sends that wait, GPipe runs and 1F1B hangs: stage s sends an
  activation on while stage s + 1 sends a gradient back, and neither receives. So a tensor on its
  way is kept alive here until it has been taken.
- **Receives are posted one message ahead**, so that it arrives while the rank still computes.
- **Shapes go first.** Before the first activation its shape, dtype and whether a gradient is to
  come back travel as a header. They then hold for all microbatches, in both directions.
- **One process group a direction.** NCCL runs the messages between two ranks of a group in the
  order in which they were posted: there, two sends that meet could wait for each other for ever.
"""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist

from course_lib.techniques.schedules import FORWARD, Op

from .messages import Message

_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32)
_MOST_DIMENSIONS = 8
_AHEAD = 1  # messages of a channel that are posted before they are needed
_KEPT = 4  # the newest sends, which are not asked yet whether they are complete


class Shape(NamedTuple):
    """What crosses the boundary between two stages, the same for every microbatch."""

    size: tuple[int, ...]
    dtype: torch.dtype
    needs_gradient: bool  # whether a gradient comes back


class Mailbox:
    """The messages of one rank, step after step of one schedule."""

    def __init__(
        self,
        messages: Sequence[Message],
        rank: int,
        groups: dict[tuple[bool, bool], dist.ProcessGroup],
        device: torch.device,
    ) -> None:
        self.groups, self.device = groups, device
        self._outgoing = {m.result: m for m in messages if m.source == rank}
        self._incoming = {m.result: m for m in messages if m.destination == rank}
        # By channel (who sends in which direction), in the order in which they are sent.
        self._channels: dict[tuple, list[Message]] = {}
        for message in self._incoming.values():
            channel = (message.source, message.direction)
            self._channels.setdefault(channel, []).append(message)
        self._shapes: dict[int, Shape] = {}
        self._batch: object = None
        self._posted: dict[Op, tuple[dist.Work, torch.Tensor]] = {}
        self._next: dict[tuple, int] = {}
        self._under_way: deque[tuple[dist.Work, torch.Tensor]] = deque()

    def begin(self, batch: object) -> None:
        """A step begins. Shapes are exchanged anew if `batch` is not what it was before."""
        if batch != self._batch:
            self._batch = batch
            self._shapes.clear()
        self._next = dict.fromkeys(self._channels, 0)
        for channel in self._channels:
            self._post(channel, _AHEAD)

    def receives(self, result: Op) -> bool:
        """Whether `result` comes from another rank."""
        return result in self._incoming

    def receive(self, result: Op) -> torch.Tensor | None:
        """Wait for `result`; None for a gradient that nobody needs."""
        message = self._incoming[result]
        if message.boundary not in self._shapes:
            self._receive_header(message)
        channel = (message.source, message.direction)
        self._post(channel, self._channels[channel].index(message) + 1 + _AHEAD)
        if result not in self._posted:
            return None
        work, tensor = self._posted.pop(result)
        work.wait()
        shape = self._shapes[message.boundary]
        return tensor.requires_grad_(shape.needs_gradient and result.kind == FORWARD)

    def send(self, result: Op, tensor: torch.Tensor | None) -> None:
        """Begin to send `result` to whoever needs it, if anybody does."""
        message = self._outgoing.get(result)
        if message is None:
            return
        if result.kind != FORWARD and not self._shapes[message.boundary].needs_gradient:
            return
        assert tensor is not None  # since somebody needs it
        if result.kind == FORWARD:
            self._announce(message, tensor)
        self._isend(message, tensor)

    def finish(self) -> None:
        """The step ends: wait until everything that was sent has been taken."""
        while self._under_way:
            work, _ = self._under_way.popleft()
            work.wait()

    # --------------------------------------------------------------------------------------------

    def _post(self, channel: tuple, count: int) -> None:
        """Have the first `count` receives of a channel posted, as far as shapes are known."""
        messages = self._channels[channel]
        while self._next[channel] < min(count, len(messages)):
            message = messages[self._next[channel]]
            shape = self._shapes.get(message.boundary)
            if shape is None:
                return
            self._next[channel] += 1
            if message.result.kind == FORWARD or shape.needs_gradient:
                tensor = torch.empty(shape.size, dtype=shape.dtype, device=self.device)
                self._posted[message.result] = self._irecv(message, tensor), tensor

    def _announce(self, message: Message, tensor: torch.Tensor) -> None:
        """Send the header before the first activation; hold every later one against it."""
        shape = Shape(tuple(tensor.shape), tensor.dtype, tensor.requires_grad)
        known = self._shapes.setdefault(message.boundary, shape)
        if known is not shape and known != shape:
            _, stage, microbatch = message.result
            raise ValueError(
                f"stage {stage}, microbatch {microbatch}: the output is {_words(shape)}, and was "
                f"{_words(known)} before; the stages have agreed on one shape for all microbatches"
            )
        if known is shape:
            header = [_DTYPES.index(shape.dtype), shape.needs_gradient, len(shape.size)]
            header += [*shape.size, *[0] * (_MOST_DIMENSIONS - len(shape.size))]
            self._isend(message, torch.tensor(header, device=self.device))

    def _receive_header(self, message: Message) -> None:
        header = torch.empty(3 + _MOST_DIMENSIONS, dtype=torch.int64, device=self.device)
        self._irecv(message, header).wait()
        dtype, needs_gradient, dimensions, *size = header.tolist()
        shape = Shape(tuple(size[:dimensions]), _DTYPES[dtype], bool(needs_gradient))
        self._shapes[message.boundary] = shape

    def _isend(self, message: Message, tensor: torch.Tensor) -> None:
        tensor = tensor.detach().contiguous()
        group = self.groups[message.direction]
        work = dist.isend(tensor, group=group, group_dst=message.destination)
        assert work is not None  # as torch has it for ranks outside of the group
        self._under_way.append((work, tensor))
        while len(self._under_way) > _KEPT and self._under_way[0][0].is_completed():
            self._under_way.popleft()

    def _irecv(self, message: Message, tensor: torch.Tensor) -> dist.Work:
        group = self.groups[message.direction]
        work = dist.irecv(tensor, group=group, group_src=message.source)
        assert work is not None
        return work


def _words(shape: Shape) -> str:
    gradient = "with" if shape.needs_gradient else "without"
    return f"{shape.size} {str(shape.dtype).removeprefix('torch.')} {gradient} a gradient"
