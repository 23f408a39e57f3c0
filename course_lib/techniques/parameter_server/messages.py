"""What travels: a header of seven numbers, then key ranges, then values.

    worker -> server    LOAD    ranges and values     to start from
                        PUSH    ranges and values     of one task; FINISH says that it was the last
                        PULL    ranges                answered when the worker may start
                        LEAVE                         after the last task
    server -> worker    reply   version and time, and the values of a pull
    server -> replica   what it has taken from a worker, as it came; and LOST for a dead worker

Headers take 56 bytes and a range 16, so a dense push is hardly more than its values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import torch
import torch.distributed as dist

from .key_ranges import KeyRange, count


class Kind(IntEnum):
    """What a request asks for."""

    LOAD, PUSH, FINISH, PULL, LEAVE, LOST = range(6)


@dataclass
class Request:
    """One message to a server.

    worker: the global rank on whose behalf it is. task: the worker's clock.
    time: the worker's logical time. version: of the parameters that the worker computed with.
    values: of `ranges`, one after the other; None in a pull.
    """

    kind: Kind
    worker: int
    task: int = 0
    time: int = 0
    version: int = 0
    ranges: Sequence[KeyRange] = ()
    values: torch.Tensor | None = field(default=None, repr=False)


_HEADER = 7
_REPLY = 2
_TAGS = range(3)  # header, ranges, values: the parts of two messages never mix


class PeerLost(RuntimeError):
    """The connection to `peer` is closed: its process has ended."""

    def __init__(self, peer: int) -> None:
        super().__init__(f"rank {peer} has closed its connection")
        self.peer = peer


class Exchange:
    """A request to rank `to` and its answer, both on their way."""

    def __init__(
        self, request: Request, to: int, dtype: torch.dtype, group: dist.ProcessGroup | None
    ) -> None:
        self.to = to
        self.lost: RuntimeError | None = None  # what the closed connection raised
        self.works: list[dist.Work | None] = []  # None is torch's for ranks outside of the group
        kind, ranges, values = request.kind, list(request.ranges), request.values
        sizes = len(ranges), 0 if values is None else values.numel()
        numbers = kind, request.worker, request.task, request.time, request.version, *sizes
        wanted = count(ranges) if kind == Kind.PULL else 0
        pairs = [[keys.start, keys.stop] for keys in ranges]
        # Kept until the end: nothing may free a buffer that is being sent.
        self.sent = torch.tensor(numbers), torch.tensor(pairs, dtype=torch.int64), values
        self.header = torch.empty(_REPLY, dtype=torch.int64)
        self.values = torch.empty(wanted, dtype=dtype)
        try:
            for part, tag in zip(self.sent, _TAGS, strict=True):
                if part is not None and part.numel():
                    self.works.append(dist.isend(part, to, group=group, tag=tag))
            for part, tag in ((self.header, _TAGS[0]), (self.values, _TAGS[2])):
                if part.numel():
                    self.works.append(dist.irecv(part, to, group=group, tag=tag))
        except RuntimeError as problem:
            self.lost = problem

    def wait(self) -> tuple[int, int, torch.Tensor]:
        """Version, time and values. Raises `PeerLost` when the other side has died."""
        for work in self.works:
            try:
                if work is not None:
                    work.wait()
            except RuntimeError as problem:
                self.lost = problem  # and wait for the rest, which ends at once then
        if self.lost:
            raise PeerLost(self.to) from self.lost
        version, time = self.header.tolist()
        return version, time, self.values


def receive_request(
    source: int | None, dtype: torch.dtype, group: dist.ProcessGroup | None = None
) -> Request:
    """The next request from rank `source`, or from any rank (None)."""
    try:
        header = torch.empty(_HEADER, dtype=torch.int64)
        source = dist.recv(header, source, group=group, tag=_TAGS[0])
        kind, worker, task, time, version, pairs, numbers = header.tolist()
        ranges = torch.empty(pairs, 2, dtype=torch.int64)
        values = torch.empty(numbers, dtype=dtype)
        for part, tag in ((ranges, _TAGS[1]), (values, _TAGS[2])):
            if part.numel():
                dist.recv(part, source, group=group, tag=tag)
    except RuntimeError as problem:
        if source is None:
            raise  # nobody knows who it was
        raise PeerLost(source) from problem
    keys = [KeyRange(*pair) for pair in ranges.tolist()]
    return Request(Kind(kind), worker, task, time, version, keys, values)


def send_reply(
    to: int,
    version: int,
    time: int,
    values: torch.Tensor | None = None,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Answer a request: an acknowledgement, or the values that a pull asked for."""
    try:
        dist.send(torch.tensor([version, time]), to, group=group, tag=_TAGS[0])
        if values is not None and values.numel():
            dist.send(values, to, group=group, tag=_TAGS[2])
    except RuntimeError as problem:
        raise PeerLost(to) from problem
