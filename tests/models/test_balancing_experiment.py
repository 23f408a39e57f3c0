"""A step takes as long as its busiest expert, and the time is kept."""

import pytest

from course_lib.models.balancing_experiment import EXPERTS, SENDERS, busiest, train_for


def evenly(logits, experts):
    return EXPERTS * logits.softmax(1).mean(0).square().sum()


def test_the_busiest_expert_is_told_in_even_shares_and_layers_count_alike():
    even, one = [[3] * EXPERTS] * SENDERS, [[EXPERTS, *[0] * (EXPERTS - 1)]] * SENDERS
    assert busiest([even]) == 1
    assert busiest([one]) == EXPERTS
    assert busiest([even, one]) == (1 + EXPERTS) / 2


@pytest.fixture(scope="module")
def run():
    return train_for(12, evenly, 0.1)


def test_a_step_ends_when_its_busiest_expert_does(run):
    lengths = [busiest(tables) for tables in run.loads]
    assert run.moments == [sum(lengths[: step + 1]) for step in range(len(lengths))]
    assert run.moments[-1] <= 12 < run.moments[-1] + EXPERTS
    assert len(run.moments) == len(run.losses) == len(run.loads)


def test_all_tokens_of_every_layer_are_counted(run):
    rows = {sum(map(sum, table)) for tables in run.loads for table in tables}
    assert len(rows) == 1
    assert {len(table) for tables in run.loads for table in tables} == {SENDERS}
