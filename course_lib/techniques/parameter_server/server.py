"""A server: take requests, hold back who is too far ahead, and keep a replica up to date.

    report = Server(job, layout, make_optimizer).serve()      on each rank of job.servers

Chain replication with two links: the worker talks to the head, which takes the request, hands it on
to its replica and answers only when that has it too.

    worker --push--> head --copy--> replica
    worker <--ack--- head <--ack--- replica

So what was acknowledged is on two servers. When the head dies, the replica finds their connection
closed and goes on in its stead, and the workers ask it again what the head has not answered. When
the replica dies, the head goes on alone. Li et al., OSDI 2014, section 4.4; van Renesse &
Schneider, "Chain Replication for Supporting High Throughput and Availability", OSDI 2004.
"""

from dataclasses import dataclass, field

import torch.distributed as dist
from torch.profiler import record_function

from course_lib.techniques.make_optimizer import MakeOptimizer

from .apply_gradients import Shard, Step
from .inbox import ByArrival, ByLogicalTime
from .job import Job
from .key_ranges import Layout
from .messages import Exchange, Kind, PeerLost, Request, receive_request, send_reply


@dataclass(frozen=True)
class Start:
    """`worker` was given the values for `task`, `lead` ahead of the slowest.

    waited: logical time from its pull to the answer (0 in order of arrival).
    """

    worker: int
    task: int
    lead: int
    waited: int


@dataclass
class Report:
    """What a server has seen: starts and steps in order, and who died, workers and servers."""

    starts: list[Start] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)


class Server:
    """The server of this rank. Raises `ValueError` before it sends anything."""

    def __init__(self, job: Job, layout: Layout, make_optimizer: MakeOptimizer) -> None:
        job.check(layout)
        self.job, self.layout, rank = job, layout, dist.get_rank()
        self.number = next((i for i, chain in enumerate(job.servers) if rank in chain), None)
        if self.number is None:
            raise ValueError(f"rank {rank} is not among the servers {job.servers}")
        chain, ranges = job.servers[self.number], job.placement[self.number]
        self.head = chain[0] if rank != chain[0] else None
        self.replica = chain[1] if rank == chain[0] and len(chain) == 2 else None
        self.shard = Shard(layout, ranges, job.workers, job.bound, make_optimizer)
        self.inbox = (ByLogicalTime if job.logical_time else ByArrival)(job, layout.dtype)
        self.held: dict[int, Request] = {}  # pulls that wait
        self.report = Report(steps=self.shard.steps)

    def serve(self) -> Report:
        """Until every worker has left or died."""
        live = self.shard.progress.clocks
        while live and self.head is not None:
            self._follow(self.head)
        while live:
            awaited = sorted((w for w in live if w not in self.held), key=lambda w: (live[w], w))
            everyone = not self.held and not self.shard.left
            try:
                request = self.inbox.next(awaited, everyone)
            except PeerLost as lost:
                request = self._lost_worker(lost.peer)
            self.handle(request)
            self._release(request.time)
        return self.report

    def handle(self, request: Request) -> None:
        """Take one request; on the head also hand it on and answer it."""
        with record_function(f"{request.kind.name.lower()} {request.task}"):
            if request.kind == Kind.PULL:
                self.held[request.worker] = request
                return
            self.shard.take(request)
            self.copy(request)
            if request.kind != Kind.LOST and self.head is None:
                self._answer(request, request.time)

    def copy(self, request: Request) -> None:
        """Hand the request on and wait until the replica has it."""
        if self.replica is None:
            return
        try:
            Exchange(request, self.replica, self.layout.dtype, self.job.group).wait()
        except PeerLost as lost:
            self.report.lost.append(lost.peer)
            self.replica = None

    # --------------------------------------------------------------------------------------------

    def _follow(self, head: int) -> None:
        """The replica takes what the head has taken."""
        try:
            request = receive_request(head, self.layout.dtype, self.job.group)
            self.handle(request)
            send_reply(head, self.shard.version, 0, group=self.job.group)
        except PeerLost as lost:
            self.report.lost.append(lost.peer)
            self.head = None

    def _release(self, now: int) -> None:
        """Answer the pulls of those who may start now."""
        progress = self.shard.progress
        while ready := [w for w in self.held if self.shard.loaded and progress.may_start(w)]:
            pull = self.held.pop(min(ready))
            time = max(now, pull.time)
            lead = progress.lead(pull.worker)
            self.report.starts.append(Start(pull.worker, pull.task, lead, time - pull.time))
            self._answer(pull, time)

    def _answer(self, request: Request, time: int) -> None:
        values = self.shard.read(request.ranges) if request.kind == Kind.PULL else None
        try:
            send_reply(request.worker, self.shard.version, time, values, self.job.group)
        except PeerLost as lost:
            self.handle(self._lost_worker(lost.peer))

    def _lost_worker(self, worker: int) -> Request:
        """A worker has died: what to do about it is a request like any other."""
        self.report.lost.append(worker)
        self.held.pop(worker, None)
        return Request(Kind.LOST, worker)
