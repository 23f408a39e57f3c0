"""What one server keeps: its keys' values, an optimizer over them, and the workers' progress.

A shard communicates nothing. It is a function of the requests that it is given, one after the
other, and this is why it can be replicated: a copy that is given the same requests in the same
order has the same values to the last bit.

Sequential, it waits for the pushes of one task from all workers, adds them in the order of their
ranks and takes one optimizer step. So it does what one process with the whole batch would do, if
every worker weights its gradient by its share of the batch. Otherwise it takes a step for every
task of every worker as it comes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from course_lib.techniques.make_optimizer import MakeOptimizer

from .bounded_delay import SEQUENTIAL, Progress
from .key_ranges import KeyRange, Layout, overlaps
from .messages import Kind, Request
from .range_clocks import RangeClocks


@dataclass(frozen=True)
class Step:
    """A task of `worker` went into the values: `staleness` steps after it had pulled them."""

    worker: int
    task: int
    staleness: int


class Shard:
    """The keys of `ranges`, trained by what the workers push.

    make_optimizer: any whose step looks at one element at a time (SGD, Adam, ...): a shard has no
        whole tensors. A piece that nobody pushed anything for is left out of a step, as a parameter
        without gradient is.
    """

    def __init__(
        self,
        layout: Layout,
        ranges: Sequence[KeyRange],
        workers: Sequence[int],
        bound: float,
        make_optimizer: MakeOptimizer,
    ) -> None:
        self.progress = Progress(workers, bound)
        self.clocks = RangeClocks(ranges, workers)
        self.version = 0  # steps taken
        self.steps: list[Step] = []
        self.loaded = False
        self.left = False  # whether some worker has finished its last task
        self.pieces = [
            (keys, nn.Parameter(torch.zeros(len(keys), dtype=layout.dtype)))
            for keys in overlaps(layout.ranges, ranges)
        ]
        group = {"params": [piece for _, piece in self.pieces]}
        self.optimizer = make_optimizer([group]) if self.pieces else None
        self._pushed: dict[int, list[Request]] = {worker: [] for worker in workers}

    def take(self, request: Request) -> None:
        """Any request that changes something; one that was taken before changes nothing."""
        worker = request.worker
        if request.kind == Kind.LOAD and not self.loaded:
            self._load(request)
        elif request.kind in (Kind.PUSH, Kind.FINISH):
            self._push(request)
        elif request.kind in (Kind.LEAVE, Kind.LOST):
            self.progress.remove(worker)
            self.left |= request.kind == Kind.LEAVE
            if request.kind == Kind.LOST and self._unfinished(worker):
                self._pushed[worker] = []  # half a task
        self._step_if_complete()

    def read(self, ranges: Iterable[KeyRange]) -> torch.Tensor:
        """The values of these keys, one after the other."""
        parts = [torch.empty(0, dtype=self.pieces[0][1].dtype)] if self.pieces else []
        for keys, piece, both in self._in(ranges):
            parts.append(piece.detach()[both.start - keys.start : both.stop - keys.start])
        return torch.cat(parts) if parts else torch.empty(0)

    # --------------------------------------------------------------------------------------------

    def _in(self, ranges: Iterable[KeyRange]) -> list[tuple[KeyRange, nn.Parameter, KeyRange]]:
        """(keys of a piece, the piece, those of its keys that are asked), range by range."""
        return [
            (keys, piece, both)
            for asked in ranges
            for keys, piece in self.pieces
            if len(both := asked.overlap(keys))
        ]

    @torch.no_grad()
    def _load(self, request: Request) -> None:
        assert request.values is not None  # only a pull has none
        offset = 0
        for keys, piece, both in self._in(request.ranges):
            target = piece[both.start - keys.start : both.stop - keys.start]
            target.copy_(request.values[offset : offset + len(both)])
            offset += len(both)
        self.loaded = True

    def _push(self, request: Request) -> None:
        worker, task = request.worker, request.task
        if self.progress.clocks.get(worker, task + 1) > task:
            return  # finished before, or the worker has left
        if not request.ranges or not self.clocks.has(request.ranges, worker, task):
            self._pushed[worker].append(request)
            self.clocks.update(request.ranges, worker, task)
        if request.kind == Kind.FINISH:
            self.progress.finish(worker)
            if self.progress.bound != SEQUENTIAL:
                self._step([worker])

    def _step_if_complete(self) -> None:
        """Sequential: when everyone who is there has finished a task that is not in yet."""
        if self.progress.bound != SEQUENTIAL:
            return
        waiting = [worker for worker, pushes in self._pushed.items() if pushes]
        if waiting and not any(self._unfinished(worker) for worker in self.progress.clocks):
            self._step(waiting)

    def _unfinished(self, worker: int) -> bool:
        pushes = self._pushed[worker]
        return not pushes or pushes[-1].kind != Kind.FINISH

    def _step(self, workers: Sequence[int]) -> None:
        """One optimizer step with the sum of what these workers have pushed."""
        for _, piece in self.pieces:
            piece.grad = None
        for worker in workers:
            pushes = self._pushed[worker]
            for request in pushes:
                self._add(request)
            last = pushes[-1]
            self.steps.append(Step(worker, last.task, self.version - last.version))
            self._pushed[worker] = []
        if self.optimizer is not None:
            self.optimizer.step()
        self.version += 1

    def _add(self, request: Request) -> None:
        assert request.values is not None
        offset = 0
        for keys, piece, both in self._in(request.ranges):
            if piece.grad is None:
                piece.grad = torch.zeros_like(piece)
            own = slice(both.start - keys.start, both.stop - keys.start)
            piece.grad[own] += request.values[offset : offset + len(both)]
            offset += len(both)
