"""Workers that are slow or die, servers that die: held back, survived, never a hang.

A rank "dies" by destroying the job's process group in the middle of its work: that closes its
connections, which is all that the others see of a killed process. One test kills for real.
"""

import os
import signal
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from course_lib.models import NASTY_MODELS, train
from course_lib.models.edge_cases import INPUTS, OUTPUTS
from course_lib.ranks import RankError, collect, watchdog
from course_lib.techniques.parameter_server import (
    EVENTUAL,
    SEQUENTIAL,
    Job,
    Layout,
    Server,
    Worker,
    by_range,
)
from course_lib.techniques.parameter_server.messages import Kind
from tests.techniques.least_squares_task import mse, sgd

MANY = 60.0  # seconds; for a machine with other things to do
STEPS = 6
BATCH = 6


def batch(task: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(task)
    shapes = ((BATCH, INPUTS), (BATCH, OUTPUTS))
    return tuple(torch.randn(s, generator=generator, dtype=torch.float64) for s in shapes)


class Dead(Exception):
    """Raised where a rank is to die."""


def role(
    workers, servers, bound, *, logical=False, costs=None, dies=None, server=Server, kill=None
):
    """This rank's part of a job; a worker returns its last parameters, a server its report.

    dies: worker -> task in which it dies. server: its class; kill: what a dying rank does.
    """
    everyone = [*workers, *(rank for chain in servers for rank in chain)]
    group = dist.new_group(everyone)
    rank, model = dist.get_rank(), NASTY_MODELS["odd"](dist.get_rank())
    layout = Layout(model.parameters())
    job = Job(workers, servers, by_range(layout.total, len(servers)), bound, logical, group)
    try:
        if rank not in workers:
            return server(job, layout, sgd).serve()
        worker = Worker(job, layout, (costs or {}).get(rank, 1))
        for task in range(STEPS):
            worker.pull()
            if (dies or {}).get(rank) == task:
                raise Dead
            x, y = batch(task)
            mine = slice(workers.index(rank), None, len(workers))
            mse(model, x[mine], y[mine]).backward()
            worker.push(scale=len(x[mine]) / BATCH)
        worker.pull()
        worker.leave()
        return layout.values(layout.everything)
    except Dead:
        if kill is not None:
            kill()
        dist.destroy_process_group(group)
        return "died"


def big_batch() -> torch.Tensor:
    model = NASTY_MODELS["odd"](0)
    train(model, [batch(task) for task in range(STEPS)], sgd, mse)
    layout = Layout(model.parameters())
    return layout.values(layout.everything)


# ------------------------------------------------------------------------------------------------
# Slow workers
# ------------------------------------------------------------------------------------------------


def test_a_straggler_is_held_to_the_bound_and_the_run_is_the_same_again() -> None:
    costs = {0: 2, 1: 3, 2: 13}

    def on_ranks():
        return [
            role((0, 1, 2), ((3,), (4,)), bound, logical=True, costs=costs)
            for bound in (SEQUENTIAL, 1, 3, EVENTUAL)
        ]

    first, again = collect(on_ranks, 5, timeout=MANY), collect(on_ranks, 5, timeout=MANY)
    for number, bound in enumerate((SEQUENTIAL, 1, 3, EVENTUAL)):
        report, other = first[3][number], first[4][number]
        assert report.starts == again[3][number].starts == other.starts  # on both servers
        assert report.steps == again[3][number].steps
        assert torch.equal(first[0][number], again[0][number])
        most = max(start.lead for start in report.starts)
        assert most == min(bound, STEPS)  # rank 0 needs 12 for all, rank 2 needs 13 for one
        waited = sum(start.waited for start in report.starts)
        assert (waited == 0) == (bound == EVENTUAL)
    waits = [sum(start.waited for start in report.starts) for report in first[3]]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > waits[2]
    assert max(step.staleness for step in first[3][-1].steps) > 2


@pytest.mark.parametrize("bound", [SEQUENTIAL, 1, EVENTUAL])
def test_in_order_of_arrival_the_bound_holds_too(bound) -> None:
    def on_ranks():
        return role((0, 1, 3), ((2,), (4,)), bound)

    results = collect(on_ranks, 5, timeout=MANY)
    for server in (2, 4):
        report = results[server]
        assert len(report.starts) == 3 * (STEPS + 1)
        assert max(start.lead for start in report.starts) <= bound
        assert sorted((s.worker, s.task) for s in report.steps) == sorted(
            (worker, task) for worker in (0, 1, 3) for task in range(STEPS)
        )
    if bound == SEQUENTIAL:
        assert (results[0] - big_batch()).abs().max() < 1e-10


# ------------------------------------------------------------------------------------------------
# Workers that die
# ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("logical", [False, True])
def test_the_others_go_on_without_a_dead_worker(logical: bool) -> None:
    def on_ranks():
        return [
            role((0, 1, 2), ((3,), (4,)), bound, logical=logical, dies={1: 2})
            for bound in (SEQUENTIAL, 2, EVENTUAL)
        ]

    results = collect(on_ranks, 5, timeout=MANY)
    for number in range(3):
        assert results[1][number] == "died"
        for server in (3, 4):
            report = results[server][number]
            assert report.lost == [1]
            done = {(step.worker, step.task) for step in report.steps}
            assert done == {(w, t) for w in (0, 2) for t in range(STEPS)} | {(1, 0), (1, 1)}
        assert results[0][number].isfinite().all()


def test_two_dead_workers_at_once_and_the_last_one_alone() -> None:
    def on_ranks():
        return [
            role((0, 1, 2), ((3,),), bound, dies={0: 1, 2: 1}) for bound in (SEQUENTIAL, EVENTUAL)
        ]

    results = collect(on_ranks, 4, timeout=MANY)
    for number in range(2):
        assert sorted(results[3][number].lost) == [0, 2]
        assert sum(step.worker == 1 for step in results[3][number].steps) == STEPS


# ------------------------------------------------------------------------------------------------
# Servers that die
# ------------------------------------------------------------------------------------------------


def mortal(at: int, moment: str) -> type[Server]:
    """A head that dies with its request number `at`, before or after some part of its work."""

    class Mortal(Server):
        count = 0

        def handle(self, request):
            self.count += 1
            if self.head is None and self.replica is not None and self.count == at:
                if moment == "taken":
                    self.shard.take(request)
                if moment == "copied" and request.kind != Kind.PULL:
                    self.shard.take(request)
                    self.copy(request)
                raise Dead
            super().handle(request)

    return Mortal


@pytest.mark.parametrize("moment", ["before", "taken", "copied"])
def test_nothing_acknowledged_is_lost_with_the_head(moment: str) -> None:
    def on_ranks():
        return [
            role((0, 1), ((2, 3),), SEQUENTIAL, logical=True, server=mortal(at, moment))
            for at in (1, 2, 9, 12, 13)
        ]

    results = collect(on_ranks, 4, timeout=MANY)
    want = big_batch()
    for number in range(5):
        assert results[2][number] == "died"
        assert results[3][number].lost == [2]
        for worker in (0, 1):
            assert (results[worker][number] - want).abs().max() < 1e-10, (moment, number)


def test_the_replica_goes_on_to_the_last_bit_where_the_head_stopped() -> None:
    costs = {0: 2, 1: 3}

    def on_ranks(server):
        return role((0, 1), ((2, 3), (4,)), 2, logical=True, costs=costs, server=server)

    calm = collect(on_ranks, 5, (Server,), timeout=MANY)
    for moment in ("before", "copied"):
        struck = collect(on_ranks, 5, (mortal(14, moment),), timeout=MANY)
        assert struck[2] == "died"
        assert torch.equal(struck[0], calm[0])
        assert struck[4].steps == calm[4].steps
        assert struck[3].steps == calm[2].steps


def test_the_head_goes_on_without_its_replica() -> None:
    class Frail(Server):
        def handle(self, request):
            if self.head is not None and request.task == 2:
                raise Dead
            super().handle(request)

    results = collect(lambda: role((0,), ((1, 2),), SEQUENTIAL, server=Frail), 3, timeout=MANY)
    assert results[2] == "died"
    assert results[1].lost == [2]
    assert len(results[1].steps) == STEPS


def test_a_server_that_is_killed_by_a_signal(tmp_path: Path, monkeypatch) -> None:
    # A run whose rank was killed ends soon after; here the others have work left to do.
    monkeypatch.setattr(watchdog, "_SETTLE", 5.0)

    def on_ranks():
        got = role(
            (0, 1),
            ((2, 3),),
            SEQUENTIAL,
            server=mortal(9, "copied"),
            kill=lambda: os.kill(os.getpid(), signal.SIGKILL),
        )
        if dist.get_rank() < 2:
            torch.save(got, tmp_path / str(dist.get_rank()))

    with pytest.raises(RankError) as caught:
        collect(on_ranks, 4, timeout=MANY, observe=False)
    assert caught.value.failures.keys() == {2}
    assert "SIGKILL" in caught.value.report
    for worker in "01":
        assert (torch.load(tmp_path / worker) - big_batch()).abs().max() < 1e-10
