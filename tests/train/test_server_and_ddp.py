"""What lesson 01 puts side by side: a parameter server and DDP have the same losses."""

import pytest

from course_lib.ranks import run_ranks
from course_lib.train.server_and_ddp import SERVER, model_bytes, train_with_ddp, train_with_server


def test_a_parameter_server_and_ddp_have_the_same_losses():
    ours = run_ranks(train_with_server, 3, 2, timeout=60)
    theirs = run_ranks(train_with_ddp, 2, 2, timeout=60)
    assert ours[SERVER] == []
    for worker in (0, 1):
        assert len(ours[worker]) == 2
        assert ours[worker] == pytest.approx(theirs[worker], abs=1e-5)
    # Two pulls and the last one's values: at least as many models for each of two workers
    assert ours.trace.traffic().sent[SERVER] >= 2 * 2 * model_bytes()
