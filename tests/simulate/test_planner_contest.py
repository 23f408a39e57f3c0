"""Planners are scored by their order and by what their first choice costs."""

import pytest

from course_lib.simulate import MODELS
from course_lib.simulate.frameworks import MODERN
from course_lib.simulate.planner_contest import REQUESTS, asked, asked_of, leaderboard, ways
from course_lib.simulate.planner_scores import TABLE_2, compare, compare_published, rank_correlation
from course_lib.simulate.rules_of_thumb import all_data_parallel, all_zero_3, megatrons_rule


@pytest.fixture(scope="module")
def plans():
    return {request: ways(request) for request in REQUESTS}


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1, 2, 3], [10, 20, 30], 1),
        ([1, 2, 3], [3, 2, 1], -1),
        ([1, 2, 3, 4], [2, 1, 4, 3], 0.6),  # 1 - 6 * 4 / (4 * 15)
        ([1, 2, 2, 3], [1, 2, 2, 3], 1),
        ([1, 2, 3], [5, 5, 5], 0),
    ],
)
def test_rank_correlation(first, second, expected):
    assert rank_correlation(first, second) == pytest.approx(expected)


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_the_librarys_own_prices_are_perfect_and_any_monotone_function_of_them(request_, plans):
    room = request_.cluster.device.memory
    priced = [(plan.memory.total, plan.step.total**3) for plan in plans[request_]]
    score = compare(plans[request_], priced, room)
    assert (score.correlation, score.regret) == (pytest.approx(1), 0)


def test_a_first_choice_that_does_not_fit_has_no_regret_to_show(plans):
    request = REQUESTS[2]
    lightest = [(1.0, plan.step.total) for plan in plans[request]]
    assert compare(plans[request], lightest, request.cluster.device.memory).regret is None


def test_regret_is_how_much_slower_the_first_choice_is(plans):
    request = REQUESTS[0]
    room = request.cluster.device.memory
    fitting = sorted({p.step.total for p in plans[request] if p.memory.total <= room})
    second = [
        (p.memory.total, p.step.total if p.step.total != fitting[0] else 1e9)
        for p in plans[request]
    ]
    score = compare(plans[request], second, room)
    assert score.regret == pytest.approx(fitting[1] / fitting[0] - 1)


def test_all_ways_are_there_whether_they_fit_or_not(plans):
    for request, found in plans.items():
        room = request.cluster.device.memory
        assert {plan.memory.total <= room for plan in found} == {True, False}
        assert all(plan.chunks == 1 and plan.mesh.tensor <= 8 for plan in found)
        assert all(plan.global_batch == request.batch for plan in found)
        assert all(plan.mesh.world_size == request.cluster.size for plan in found)


def test_a_planner_is_asked_in_plain_numbers(plans):
    request = REQUESTS[2]
    model, cluster, way = asked(plans[request][0], request.cluster, MODERN)
    assert model["parameters"] == MODELS["GPT-3 175B"].parameters
    assert (cluster["devices"], cluster["per_node"], cluster["rings"]) == (1024, 8, 8)
    assert cluster["inside"] == pytest.approx(240e9)
    assert cluster["flops"] == pytest.approx(0.82 * 271.2e12)
    assert way["data"] * way["micro_batch"] * way["microbatches"] == 1536
    assert asked_of(TABLE_2[-1])[1]["rings"] == 1


def test_published_runs_are_ranked_by_their_rates():
    measured = [
        run.model.flops(run.global_batch, True) / run.flops_per_second / run.cluster.size
        for run in TABLE_2
    ]
    perfect = compare_published(measured)
    assert (perfect.correlation, perfect.regret) == (pytest.approx(1), 0)
    backwards = compare_published([1 / seconds for seconds in measured])
    assert backwards.regret == pytest.approx(159 / 48 - 1)  # ZeRO-3 on 2240 instead of PTD-P


def test_rules_of_thumb_order_worse_than_formulas_do(plans):
    for rule in (all_data_parallel, all_zero_3, megatrons_rule):
        for request in REQUESTS:
            priced = [rule(*asked(p, request.cluster, MODERN)) for p in plans[request]]
            score = compare(plans[request], priced, request.cluster.device.memory)
            assert score.correlation < 0.8
            assert score.regret is not None


def test_the_leaderboard_begins_with_the_best():
    def copies(model, cluster, way):
        return 1.0, way["tensor"] * way["pipeline"] + way["zero"]

    judge, head, *rows = leaderboard(copies, "nobody", REQUESTS[:1]).splitlines()
    assert judge.split("  ")[0] == "against"
    assert head.count("first choice") == 2
    assert all(len(line) < 90 for line in (judge, head, *rows))
    assert len(rows) == 4
    assert rows[-1].split()[0] == "nobody"
    assert "does not fit" in rows[-1]
