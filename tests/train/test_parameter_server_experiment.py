"""The runs that lesson 01 compares: repeatable, and safe from a server that dies."""

import torch

from course_lib.ranks import run_ranks
from course_lib.train.parameter_server_experiment import WORKERS, train_with_server, with_a_replica


def alike(rank):
    return 10


def test_a_sequential_run_takes_a_step_per_round_and_learns():
    run = run_ranks(train_with_server, WORKERS + 1, 0, alike, 2.0, 50, observe=False, timeout=60)
    log, report = run[WORKERS]
    assert [gradients for _, gradients, _ in log][-1] == len(report.steps) == 5 * WORKERS
    assert log[-1][2] < log[0][2]
    assert list(run)[:WORKERS] == [50] * WORKERS


def test_a_server_that_dies_changes_no_bit():
    calm = run_ranks(with_a_replica, 4, None, observe=False, timeout=60)
    struck = run_ranks(with_a_replica, 4, "after the copy", observe=False, timeout=60)
    assert struck[2] == "died"
    assert list(struck[3]) == [2]
    assert torch.equal(struck[0], calm[0])
