"""Whose message a server takes next.

Arrival: whoever comes first. The server of a cluster does so, and no two runs are alike.

Logical time: every worker counts its own time, a task costing what it is told to cost, and messages
are taken in the order of these times (then of ranks), whenever they arrive. To know which is first
the server waits until it holds a message of everyone who can send one. So a worker can be made ten
times slower than the others, and the run is the same on any machine, without a sleep.

A worker that has died is noticed when the server listens to it only: its connection is closed.
"""

from collections.abc import Sequence

import torch

from .job import Job
from .messages import Request, receive_request


class ByArrival:
    """The next message of anyone.

    As soon as a worker is held back or has left, others may wait for one that is dead. Then the
    server listens to the slowest only, for whom they wait, until it speaks or is found dead.
    """

    def __init__(self, job: Job, dtype: torch.dtype) -> None:
        self.job, self.dtype = job, dtype

    def next(self, awaited: Sequence[int], everyone: bool) -> Request:
        """The next request of the workers `awaited`, slowest first; `everyone`: none is missing."""
        source = None if everyone and len(awaited) > 1 else awaited[0]
        return receive_request(source, self.dtype, self.job.group)


class ByLogicalTime:
    """The message with the earliest logical time, once all that can come are there."""

    def __init__(self, job: Job, dtype: torch.dtype) -> None:
        self.job, self.dtype = job, dtype
        self.waiting: dict[int, Request] = {}

    def next(self, awaited: Sequence[int], everyone: bool) -> Request:
        """As in `ByArrival`."""
        for worker in awaited:
            if worker not in self.waiting:
                self.waiting[worker] = receive_request(worker, self.dtype, self.job.group)
        first = min(self.waiting.values(), key=lambda request: (request.time, request.worker))
        return self.waiting.pop(first.worker)
