"""A small network trained with one parameter server, watched: for lesson 01's comparisons.

Messages are taken by logical time, each task costing what `cost` says, so that a run is the same on
every machine. Ranks 0 to 7 are workers, rank 8 is the server; or, in `with_a_replica`, ranks 0 and
1 are workers, 2 the server and 3 its replica.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from course_lib.techniques.parameter_server import Job, Layout, Server, Worker, by_range

WORKERS, BATCH = 8, 16


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """256 samples: inputs (256, 20) and targets (256, 8)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(256, 20, generator=generator, dtype=torch.float64)
    goal = torch.randn(20, 8, generator=generator, dtype=torch.float64) / 20**0.5
    return x, torch.tanh(x @ goal)


def network() -> nn.Sequential:
    """The network that learns them, the same on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 32), nn.Tanh(), nn.Linear(32, 8)).double()


class WatchedServer(Server):
    """Notes the time, the number of gradients and the loss over all data after every step."""

    def __init__(
        self, job: Job, layout: Layout, make_optimizer: Callable, loss: Callable[[], torch.Tensor]
    ) -> None:
        super().__init__(job, layout, make_optimizer)
        self.loss = loss
        self.log: list[tuple[float, int, float]] = []

    def handle(self, request: Any) -> None:
        steps = len(self.shard.steps)
        super().handle(request)
        if len(self.shard.steps) > steps:
            self.layout.write(self.layout.everything, self.shard.read(self.layout.everything))
            self.log.append((request.time, len(self.shard.steps), self.loss().item()))


def train_with_server(
    bound: float,
    cost: Callable[[int], int],
    learning_rate: float,
    until: float,
    target: float = 0.0,
    make_filter: Callable[[Layout], Any] | None = None,
) -> Any:
    """One rank's part of a run that ends when the time is up or the loss is below `target`.

    bound: how many tasks a worker may lead the slowest by. cost: time of a task, by worker.
    Returns [(time, gradients, loss)] and the server's report on the server; on a worker its time.
    """
    model, (x, y) = network(), data()
    layout = Layout(model.parameters())
    whole = by_range(layout.total, 1)
    job = Job(tuple(range(WORKERS)), ((WORKERS,),), whole, bound, logical_time=True)

    @torch.no_grad()
    def loss() -> torch.Tensor:
        return nn.functional.mse_loss(model(x), y)

    if (rank := dist.get_rank()) == WORKERS:
        sgd = partial(torch.optim.SGD, lr=learning_rate)
        server = WatchedServer(job, layout, sgd, loss)
        report = server.serve()
        return server.log, report
    kept_back = make_filter(layout) if make_filter else None
    worker = Worker(job, layout, cost=cost(rank), filter=kept_back)
    while True:
        worker.pull()
        if loss() < target or worker.time >= until:
            break
        first = (worker.task * WORKERS + rank) * BATCH % 256
        part = slice(first, first + BATCH)
        nn.functional.mse_loss(model(x[part]), y[part]).backward()
        worker.push(scale=1 / WORKERS)
    worker.leave()
    return worker.time


class DyingServer(Server):
    """Dies with a push in its hands after twenty steps: "before the copy" or "after the copy"."""

    moment: str | None = None

    def handle(self, request: Any) -> None:
        due = self.replica and len(self.shard.steps) == 20 and request.kind.name == "FINISH"
        if not (self.moment and due):
            super().handle(request)
            return
        if self.moment == "after the copy":
            self.shard.take(request)
            self.copy(request)
        raise ConnectionAbortedError  # no acknowledgement


def with_a_replica(moment: str | None) -> Any:
    """One rank's part of a run whose server dies at `moment`, or never (None).

    Returns the final parameters on a worker, "died" on a server that died, and on a server that
    lived the ranks that it lost.
    """
    model, (x, y) = network(), data()
    layout = Layout(model.parameters())
    group = dist.new_group([0, 1, 2, 3])
    job = Job((0, 1), ((2, 3),), by_range(layout.total, 1), 4, logical_time=True, group=group)
    if dist.get_rank() >= 2:
        server = DyingServer(job, layout, partial(torch.optim.SGD, lr=0.5, momentum=0.9))
        server.moment = moment
        try:
            return server.serve().lost
        except ConnectionAbortedError:
            dist.destroy_process_group(group)  # its connections close, as a killed process' do
            return "died"
    worker = Worker(job, layout, cost=2 + dist.get_rank())
    for _ in range(20):
        worker.pull()
        nn.functional.mse_loss(model(x), y).backward()
        worker.push(scale=1 / 2)
    worker.pull()
    worker.leave()
    return layout.values(layout.everything)
