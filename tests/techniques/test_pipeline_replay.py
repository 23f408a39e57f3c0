"""A pipeline that ran, replayed in unit costs, is the pipeline that was simulated."""

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course_lib.ranks import collect
from course_lib.simulate import Link, dgx_a100, replay, simulate
from course_lib.techniques.pipeline import Pipeline, stages_of
from course_lib.techniques.schedules import gpipe, interleaved, one_f_one_b

COSTS = {"F": 1, "B": 2}
FREE = Link("free", 0, 1e30)


class Noted(torch.autograd.Function):
    """Notes when a stage runs forward and backward."""

    @staticmethod
    def forward(ctx, x, log):
        ctx.log = log
        log.append(time.monotonic())
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        ctx.log.append(time.monotonic())
        return gradient, None


class Stage(nn.Module):
    def __init__(self, log):
        super().__init__()
        self.linear, self.log = nn.Linear(3, 3), log

    def forward(self, x):
        return Noted.apply(self.linear(x), self.log)


def run(table):
    log = []
    modules = {stage: Stage(log) for stage in stages_of(table, dist.get_rank())}
    x, y = torch.ones(2, 8, 3)
    Pipeline(modules, table, nn.functional.mse_loss).train_step(x, y)
    return log


@pytest.mark.parametrize(
    "table",
    [gpipe(3, 4), one_f_one_b(3, 4), one_f_one_b(3, 2), interleaved(2, 4, 2)],
    ids=["GPipe", "1F1B", "1F1B, m < p", "interleaved"],
)
def test_the_replay_of_a_run_is_its_simulation(table):
    results = collect(run, len(table), (table,))
    compute = []
    for rank, (row, log) in enumerate(zip(table, results, strict=True)):
        assert len(log) == len(row)
        for op, start in zip(row, log, strict=True):
            span = SimpleNamespace(rank=rank, name=str(op), start=start, seconds=COSTS[op.kind])
            compute.append(span)
    timeline = replay(results.trace, replace(dgx_a100, inside=FREE), compute=compute)
    expected = simulate(table, forward=1, backward=2)
    assert timeline.makespan == pytest.approx(expected.makespan)
    assert timeline.bubble_fraction == pytest.approx(expected.bubble_fraction)
    assert timeline.peak_in_flight == expected.peak_in_flight
