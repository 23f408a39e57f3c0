"""The largest tensor that some code makes, to the byte."""

import torch
import torch.nn.functional as F

from course_lib.observe import largest_tensor


def test_what_is_made_on_the_way_counts_and_what_was_there_does_not():
    q, k, v = torch.randn(3, 1, 2, 64, 4, dtype=torch.float64)
    with largest_tensor() as largest:
        (q @ k.mT).softmax(-1) @ v
    assert largest.nbytes == 2 * 64 * 64 * 8
    with largest_tensor() as largest:
        assert largest.nbytes == 0
        torch.ones(3).sum()
    assert largest.nbytes == 3 * 4


def test_an_operator_that_returns_several_tensors_is_seen_whole():
    x = torch.zeros(10, 5)
    with largest_tensor() as largest:
        x.topk(4)
    assert largest.nbytes == 10 * 4 * 8  # the indices, int64
    with largest_tensor() as largest:
        F.relu(x)
    assert largest.nbytes == x.nbytes
