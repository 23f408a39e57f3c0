"""A worker: pull the parameters, compute a gradient, push it.

    worker = Worker(job, Layout(model.parameters()))
    for x, y in batches:
        worker.pull()                       # waits while the consistency model says so
        loss(model(x), y).backward()
        worker.push(scale=len(x) / whole_batch)
    worker.leave()

The loop of a single process with `pull` for "have the parameters" and `push` for "step": the
optimizer is on the servers. Li et al., "Scaling Distributed Machine Learning with the Parameter
Server", OSDI 2014, Algorithm 1 and section 3.2.
"""

from collections.abc import Callable, Iterable, Sequence

import torch
import torch.distributed as dist
from torch.profiler import record_function

from .job import Job
from .key_ranges import KeyRange, Layout, overlaps
from .messages import Exchange, Kind, PeerLost, Request

Filter = Callable[[Sequence[KeyRange], torch.Tensor], tuple[list[KeyRange], torch.Tensor]]


class Worker:
    """The worker of this rank; `layout` lies over the parameters of its model.

    cost: logical time that a task takes, or cost(task); only their order matters, and only to a job
        in logical time. filter: what to send instead of a gradient; see filters.py.

    The first worker of the job gives the servers its parameters to start from. Raises `ValueError`
    before it sends anything, and `PeerLost` when a server and its replica are dead.
    """

    def __init__(
        self,
        job: Job,
        layout: Layout,
        cost: int | Callable[[int], int] = 1,
        filter: Filter | None = None,
    ) -> None:
        job.check(layout)
        self.job, self.layout, self.rank = job, layout, dist.get_rank()
        if self.rank not in job.workers:
            raise ValueError(f"rank {self.rank} is not among the workers {job.workers}")
        self.cost = cost if callable(cost) else lambda task: cost
        self.filter = filter
        self.task, self.time = 0, 0  # the task that runs or comes next; logical time
        self.versions = [0] * len(job.servers)  # of the values pulled, by server
        self.alive = [list(chain) for chain in job.servers]
        if self.rank == job.workers[0]:
            self._ask(Kind.LOAD, layout.everything, layout.values)

    def pull(self, ranges: Iterable[KeyRange] | None = None) -> None:
        """Get the values of these keys as soon as the next task may start; gradients become None.

        Without `ranges` these are all keys the first time, and later what is not frozen.
        """
        with record_function(f"pull {self.task}"):
            layout = self.layout
            asked = ranges or (layout.trainable if self.task else layout.everything)
            replies = self._ask(Kind.PULL, asked)
            for server, (keys, (version, time, values)) in enumerate(replies):
                self.layout.write(keys, values)
                self.versions[server] = version
                self.time = max(self.time, time)
        self.layout.zero_gradients()

    def push(
        self, ranges: Iterable[KeyRange] | None = None, scale: float = 1.0, finish: bool = True
    ) -> None:
        """Send `scale` times the gradients of these keys (None: all that have one).

        A task may push in several parts, every key once; the last part finishes the task, and its
        effect on the parameters, too, comes with it.
        """
        if finish:
            self.time += self.cost(self.task)
        with record_function(f"push {self.task}"):
            pushed = self.layout.with_gradient() if ranges is None else list(ranges)

            def values(keys: Sequence[KeyRange]) -> torch.Tensor:
                return scale * self.layout.gradients(keys)

            self._ask(Kind.FINISH if finish else Kind.PUSH, pushed, values)
        self.task += finish

    def leave(self) -> None:
        """There are no more tasks here; nobody waits for this worker any longer."""
        self._ask(Kind.LEAVE, ())

    # --------------------------------------------------------------------------------------------

    def _ask(
        self,
        kind: Kind,
        ranges: Iterable[KeyRange],
        values: Callable[[Sequence[KeyRange]], torch.Tensor] | None = None,
    ) -> list[tuple[Sequence[KeyRange], tuple[int, int, torch.Tensor]]]:
        """Send every server its part of a request; (its ranges, its answer) of each."""
        requests = []
        for server, owned in enumerate(self.job.placement):
            keys, numbers = overlaps(ranges, owned), None
            if values is not None:
                numbers = values(keys)
                if self.filter is not None and kind != Kind.LOAD:
                    keys, numbers = self.filter(keys, numbers)
            version = self.versions[server]
            requests.append(Request(kind, self.rank, self.task, self.time, version, keys, numbers))
        # All requests first, then all answers: servers work at the same time.
        begun = [self._begin(server, request) for server, request in enumerate(requests)]
        return [
            (request.ranges, self._finish(server, request, exchange))
            for server, (request, exchange) in enumerate(zip(requests, begun, strict=True))
        ]

    def _begin(self, server: int, request: Request) -> Exchange:
        head = self.alive[server][0]
        return Exchange(request, head, self.layout.dtype, self.job.group)

    def _finish(
        self, server: int, request: Request, exchange: Exchange
    ) -> tuple[int, int, torch.Tensor]:
        """The answer, of the replica if the head dies before it has answered."""
        try:
            return exchange.wait()
        except PeerLost:
            del self.alive[server][0]
            if not self.alive[server]:
                raise
            return self._finish(server, request, self._begin(server, request))
