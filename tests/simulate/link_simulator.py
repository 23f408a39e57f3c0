"""A second simulator of links, to check `replay` against: each message an event, on a clock.

It shares nothing with `course_lib.simulate` but the cluster's numbers. Ranks are generators that
compute, start operations and wait for them; a heap of events moves the clock. A message needs its
wire, or both adapters where it crosses the network, and takes them for alpha + nbytes / bandwidth;
whoever was ready first goes first. An all-reduce is the ring's 2(p-1) steps, message by message.
"""

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from course_lib.simulate import Cluster

_TICK = 1e-6  # between two steps of a rank: no clock shows the same time twice
Step = tuple[Any, ...]  # ("compute", seconds), ("start", name) or ("wait", name)


@dataclass
class Operation:
    """A send, a receive or a member's part in an all-reduce: when it began, was awaited, was over.

    peer: of a message. ranks: of an all-reduce.
    """

    op: str
    nbytes: int
    peer: int | None = None
    tag: int = 0
    ranks: tuple[int, ...] = ()
    issued: float | None = None
    waited: float | None = None
    done: float | None = None
    over: float | None = None  # when the bytes had moved, whether anyone waited or not


@dataclass
class Program:
    """What one rank does: steps in order, and its operations by name."""

    steps: list[Step] = field(default_factory=list)
    operations: dict[str, Operation] = field(default_factory=dict)
    computed: list[tuple[float, float]] = field(default_factory=list)  # start, seconds


class Links:
    """Runs programs on a cluster; afterwards their operations know their times."""

    def __init__(self, cluster: Cluster, programs: list[Program], speed: float = 1.0) -> None:
        self.cluster, self.programs, self.speed = cluster, programs, speed
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = itertools.count()
        self.busy: set[Any] = set()
        self.queue: list[tuple[tuple[Any, ...], float, Callable[[], None]]] = []
        self.sleeping: dict[tuple[int, str], Callable[[], None]] = {}
        self.posted: dict[Any, list[tuple[int, str]]] = defaultdict(list)
        self.rings: dict[Any, int] = defaultdict(int)

    def run(self) -> float:
        """The time at which the last rank is done."""
        for rank in range(len(self.programs)):
            self._resume(rank, self._steps(rank))
        while self.events:
            self.now, _, happen = heapq.heappop(self.events)
            happen()
        assert not self.sleeping, f"never over: {sorted(self.sleeping)}"
        return self.now

    # -- ranks -------------------------------------------------------------------------------------

    def _steps(self, rank: int) -> Iterator[Any]:
        """Yields seconds to compute for, or the name of an operation to wait for."""
        program = self.programs[rank]
        for kind, what in program.steps:
            yield _TICK
            if kind == "compute":
                program.computed.append((self.now, what))
                yield what / self.speed
            elif kind == "start":
                program.operations[what].issued = self.now
                self._post(rank, what)
            else:
                program.operations[what].waited = self.now
                if program.operations[what].over is None:
                    yield what
                program.operations[what].done = self.now

    def _resume(self, rank: int, steps: Iterator[Any]) -> None:
        for what in steps:
            if isinstance(what, str):
                self.sleeping[rank, what] = lambda: self._resume(rank, steps)
            else:
                self._after(what, lambda: self._resume(rank, steps))
            return

    def _after(self, seconds: float, happen: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.order), happen))

    def _finish(self, rank: int, name: str) -> None:
        self.programs[rank].operations[name].over = self.now
        if (rank, name) in self.sleeping:
            self.sleeping.pop((rank, name))()

    # -- operations --------------------------------------------------------------------------------

    def _post(self, rank: int, name: str) -> None:
        """A message starts with its second end, an all-reduce with its last member."""
        operation = self.programs[rank].operations[name]
        if operation.op == "all_reduce":
            key = operation.ranks, operation.tag
        else:
            ends = (rank, operation.peer) if operation.op == "send" else (operation.peer, rank)
            key = *ends, operation.tag
        self.posted[key].append((rank, name))
        if operation.op == "all_reduce":
            if len(self.posted[key]) == len(operation.ranks):
                self._ring(operation.ranks, operation.nbytes, dict(self.posted[key]))
        elif len(self.posted[key]) == 2:
            pair = self.posted[key]
            self._move(*key[:2], operation.nbytes, lambda: [self._finish(*end) for end in pair])

    def _ring(self, ranks: tuple[int, ...], nbytes: int, names: dict[int, str]) -> None:
        """Step k of a rank follows what came in with step k - 1, and its own step k - 1."""
        p = len(ranks)
        came, sent = dict.fromkeys(ranks, 0), dict.fromkeys(ranks, 0)

        def go_on(index: int) -> None:
            rank, right = ranks[index], ranks[(index + 1) % p]
            step = sent[rank]
            if step < 2 * (p - 1) and came[rank] >= step and (rank, step) not in started:
                started.add((rank, step))
                self._move(rank, right, nbytes / p, lambda: arrived(index))

        def arrived(index: int) -> None:
            rank, right = ranks[index], ranks[(index + 1) % p]
            sent[rank] += 1
            came[right] += 1
            for who in (rank, right):
                if sent[who] == came[who] == 2 * (p - 1):
                    self._finish(who, names[who])
            go_on(index)
            go_on((index + 1) % p)

        started: set[tuple[int, int]] = set()
        for index in range(p):
            go_on(index)

    # -- wires -------------------------------------------------------------------------------------

    def _move(self, sender: int, receiver: int, nbytes: float, then: Callable[[], None]) -> None:
        link = self.cluster.link(sender, receiver)
        needs: tuple[Any, ...] = ((sender, receiver),)
        if self.cluster.node(sender) != self.cluster.node(receiver):
            share = self.cluster.devices_per_node // self.cluster.adapters
            needs = ("out", sender // share), ("in", receiver // share)
        self.queue.append((needs, link.latency + nbytes / link.bandwidth, then))
        self._serve()

    def _serve(self) -> None:
        """Start whatever has its wires free, in the order in which it came."""
        for entry in list(self.queue):
            needs, seconds, then = entry
            if not self.busy.intersection(needs):
                self.queue.remove(entry)
                self.busy.update(needs)
                self._after(seconds, lambda n=needs, t=then: self._release(n, t))

    def _release(self, needs: tuple[Any, ...], then: Callable[[], None]) -> None:
        self.busy.difference_update(needs)
        then()
        self._serve()
