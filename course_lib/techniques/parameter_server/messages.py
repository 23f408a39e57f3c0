"""What travels: a header of eight numbers, then key ranges, then values.

    worker -> server    LOAD    ranges and values     to start from
                        PUSH    ranges and values     of one task; FINISH says that it was the last
                        PULL    ranges                answered when the worker may start
                        LEAVE                         after the last task
    server -> worker    reply   version and time, and the values of a pull
    server -> replica   what it has taken from a worker, as it came; and LOST for a dead worker

Headers take 64 bytes and a range 16, so a dense push is hardly more than its values.
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


_HEADER = 8
_REPLY = 2
_TAGS = range(3)  # header, ranges, values: the parts of two messages never mix


class PeerLost(RuntimeError):
    """The connection to `peer` is closed: its process has ended."""

    def __init__(self, peer: int) -> None:
        super().__init__(f"rank {peer} has closed its connection")
        self.peer = peer


def start_request(
    request: Request, to: int, group: dist.ProcessGroup | None = None
) -> list[tuple[dist.Work, torch.Tensor]]:
    """Begin to send; wait for each work, and keep its tensor until then."""
    kind, ranges, values = request.kind, list(request.ranges), request.values
    sizes = len(ranges), 0 if values is None else values.numel()
    numbers = kind, request.worker, request.task, request.time, request.version, *sizes, 0
    parts = [torch.tensor(numbers)]
    parts.append(torch.tensor([[keys.start, keys.stop] for keys in ranges], dtype=torch.int64))
    parts.append(torch.empty(0) if values is None else values)
    return [
        (dist.isend(part, to, group=group, tag=tag), part)
        for part, tag in zip(parts, _TAGS, strict=True)
        if part.numel()
    ]


def send_request(request: Request, to: int, group: dist.ProcessGroup | None = None) -> None:
    """Send and wait until it is on its way."""
    try:
        for work, _ in start_request(request, to, group):
            work.wait()
    except RuntimeError as problem:
        raise PeerLost(to) from problem


def receive_request(
    source: int | None, dtype: torch.dtype, group: dist.ProcessGroup | None = None
) -> Request:
    """The next request from rank `source`, or from any rank (None)."""
    try:
        header = torch.empty(_HEADER, dtype=torch.int64)
        source = dist.recv(header, source, group=group, tag=_TAGS[0])
        kind, worker, task, time, version, pairs, numbers, _ = header.tolist()
        ranges = torch.empty(pairs, 2, dtype=torch.int64)
        values = torch.empty(numbers, dtype=dtype)
        for part, tag in ((ranges, _TAGS[1]), (values, _TAGS[2])):
            if part.numel():
                dist.recv(part, source, group=group, tag=tag)
    except RuntimeError as problem:
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


class Reply:
    """The answer to a request, on its way."""

    def __init__(
        self, request: Request, source: int, dtype: torch.dtype, group: dist.ProcessGroup | None
    ) -> None:
        wanted = count(request.ranges) if request.kind == Kind.PULL else 0
        self.source = source
        self.header = torch.empty(_REPLY, dtype=torch.int64)
        self.values = torch.empty(wanted, dtype=dtype)
        self.works = [dist.irecv(self.header, source, group=group, tag=_TAGS[0])]
        if wanted:
            self.works.append(dist.irecv(self.values, source, group=group, tag=_TAGS[2]))

    def wait(self) -> tuple[int, int, torch.Tensor]:
        """Version, time and values."""
        try:
            for work in self.works:
                work.wait()
        except RuntimeError as problem:
            raise PeerLost(self.source) from problem
        version, time = self.header.tolist()
        return version, time, self.values
