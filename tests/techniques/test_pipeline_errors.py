"""What goes wrong in a pipeline ends at once, and is told with stage and microbatch."""

import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

from course_lib.ranks import RankError, RankTimeout, collect
from course_lib.techniques.pipeline import Pipeline
from course_lib.techniques.pipeline.partition import cut, layer_costs, split_by_cost
from course_lib.techniques.schedules import gpipe, one_f_one_b, parse_schedule

mse = nn.functional.mse_loss


class Failing(nn.Module):
    """Raises in its third forward, or in the third backward."""

    def __init__(self, when):
        super().__init__()
        self.when, self.calls = when, 0
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        y = self.linear(x)
        if self.when == "backward":
            y.register_hook(self.count)
        else:
            self.count(y)
        return y

    def count(self, _):
        self.calls += 1
        if self.calls == 3:
            raise ValueError("no more memory")


class Growing(nn.Module):
    """Gives one row less for every microbatch."""

    def __init__(self):
        super().__init__()
        self.linear, self.calls = nn.Linear(3, 3), 0

    def forward(self, x):
        self.calls += 1
        return self.linear(x)[self.calls - 1 :]


def train(module, schedule, samples=8):
    x, y = torch.ones(2, samples, 3)
    rank = dist.get_rank()
    own = module if rank == 1 else nn.Linear(3, 3)
    Pipeline({rank: own}, schedule, mse).train_step(x, y)


def report(*args, ranks=3):
    with pytest.raises(RankError) as caught:
        collect(train, ranks, args, timeout=30)
    assert not isinstance(caught.value, RankTimeout)
    return caught.value


@pytest.mark.parametrize(
    ("when", "place"),
    [("forward", "the forward pass of microbatch 2 (F1.2)"),
     ("backward", "the backward pass of microbatch 2 (B1.2)")],
)  # fmt: skip
def test_a_stage_that_raises_is_named_and_nobody_waits_long(when, place):
    start = time.monotonic()
    error = report(Failing(when), one_f_one_b(3, 4))
    assert f"stage 1 raised in {place}: ValueError: no more memory" in error.failures[1].what
    assert error.failures[1].where[0].function == "count"
    assert time.monotonic() - start < 15  # the run's own detection; its time limit is 30


def test_shapes_that_change_are_refused_before_anything_is_sent():
    error = report(Growing(), gpipe(3, 4))
    assert "stage 1, microbatch 1: the output is (1, 3) float32" in error.failures[1].what
    assert "was (2, 3) float32" in error.failures[1].what


def test_a_batch_that_does_not_divide_is_refused_by_all():
    error = report(nn.Linear(3, 3), gpipe(3, 3))
    for rank in range(3):
        assert "8 samples does not divide into 3 microbatches" in error.failures[rank].what


def test_a_table_that_would_hang_is_shown_by_all():
    table = parse_schedule("F0 F1 B0 B1\nF0 B1 F1 B0\nF0 B0 F1 B1")
    error = report(nn.Linear(3, 3), table)
    for rank in range(3):
        assert "rank 1, position 1 (stage 1, microbatch 1)" in error.failures[rank].what
        assert "^^ here" in error.failures[rank].what


def test_numbers_that_do_not_fit_are_both_named():
    assert "the schedule is for 2 ranks, and the group has 3" in str(
        report(nn.Linear(3, 3), gpipe(2, 2))
    )


def wrong_stage():
    Pipeline({1: nn.Linear(3, 3)}, gpipe(1, 2), mse)


def test_a_module_for_a_stage_of_another_rank_is_refused():
    with pytest.raises(RankError) as caught:
        collect(wrong_stage, 1)
    assert "runs the stages [0] of this schedule, and has modules for [1]" in str(caught.value)


# ------------------------------------------------------------------------------------------------


def test_stages_are_cut_by_cost():
    assert split_by_cost([0, 4, 4, 4, 4, 8], 2) == [range(4), range(4, 6)]
    assert split_by_cost([1, 1, 1, 1, 1], 5) == [range(i, i + 1) for i in range(5)]
    assert split_by_cost([5, 0, 5, 0], 2) == [range(2), range(2, 4)]
    assert split_by_cost([7], 1) == [range(1)]


def test_of_the_best_cuts_the_most_even_one_is_taken():
    parts = split_by_cost([0, 3, 3, 3, 3, 3, 3, 0.1], 4)
    assert parts == [range(3), range(3, 5), range(5, 6), range(6, 8)]


def test_the_cut_is_the_best_there_is():
    from itertools import combinations

    costs = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
    for stages in range(1, 8):
        parts = split_by_cost(costs, stages)
        assert [i for part in parts for i in part] == list(range(len(costs)))
        assert all(parts)
        best = min(
            max(sum(costs[a:b]) for a, b in zip((0, *c), (*c, len(costs)), strict=True))
            for c in combinations(range(1, len(costs)), stages - 1)
        )
        assert max(sum(costs[i] for i in part) for part in parts) == best


def test_fewer_layers_than_stages_are_refused():
    with pytest.raises(ValueError, match="2 layers cannot be cut into 3 stages"):
        split_by_cost([1, 1], 3)


def test_costs_count_operations_and_leave_the_layers_alone():
    norm = nn.BatchNorm1d(8)
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), norm, nn.Linear(8, 2))
    assert layer_costs(layers, torch.zeros(5, 4)) == [2 * 5 * 4 * 8, 0, 0, 2 * 5 * 8 * 2]
    assert norm.num_batches_tracked == 0


def test_parts_keep_the_names_of_the_whole():
    layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    first, second = cut(layers, [range(2), range(2, 3)])
    assert list(second.state_dict()) == ["2.weight", "2.bias"]
    assert first.get_parameter("0.weight") is layers[0].weight


def test_a_layer_that_is_used_twice_stays_twice():
    again = nn.Tanh()
    parts = cut(nn.Sequential(again, nn.Linear(2, 2), again), [range(1), range(1, 3)])
    assert [len(part) for part in parts] == [1, 2]
