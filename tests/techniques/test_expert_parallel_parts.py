"""Router, balancing, capacity and plans, each by itself, and the errors with their numbers."""

import math

import pytest
import torch
import torch.distributed as dist

from course_lib.ranks import RankError, collect
from course_lib.techniques.expert_parallel import (
    Experts,
    Routing,
    all_to_all,
    capacity_of,
    combine,
    dispatch,
    load_balancing_loss,
    max_violation,
    plan_dispatch,
    plan_with_capacity,
    route,
    total_counts,
    update_bias,
    within_capacity,
    z_loss,
)


def logits_of(tokens, experts, seed=0):
    return torch.randn(tokens, experts, generator=torch.Generator().manual_seed(seed)).double()


@pytest.mark.parametrize("gate", ["softmax", "sigmoid"])
@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_the_best_are_chosen_and_weigh_what_the_papers_say(gate, top_k):
    logits = logits_of(20, 5).requires_grad_()
    routing = route(logits, top_k, gate)
    for row, experts, weights in zip(
        logits.tolist(), routing.experts.tolist(), routing.weights.tolist(), strict=True
    ):
        best = sorted(range(5), key=lambda e: -row[e])[:top_k]
        assert experts == best
        scores = [math.exp(z) if gate == "softmax" else 1 / (1 + math.exp(-z)) for z in row]
        whole = sum(scores) if gate == "softmax" else 1.0
        if top_k > 1:
            whole = sum(scores[e] for e in best)
        assert weights == pytest.approx([scores[e] / whole for e in best])
    assert routing.counts.tolist() == [
        routing.experts.flatten().tolist().count(e) for e in range(5)
    ]
    (gradient,) = torch.autograd.grad(routing.weights[:, 0].sum(), logits)
    assert gradient.abs().max() > 1e-3  # also with one choice, where a share of 1 would have none


def test_a_bias_moves_the_choice_and_not_the_weights():
    logits = logits_of(20, 5)
    bias = torch.tensor([0.0, 0, 0, 9, 0])
    plain, biased = route(logits, 1), route(logits, 1, bias=bias)
    assert biased.experts.tolist() == [[3]] * 20
    assert torch.equal(biased.weights[:, 0], plain.scores[:, 3])


def test_equal_scores_go_to_the_lower_number():
    assert route(torch.zeros(3, 6), 2).experts.tolist() == [[0, 1]] * 3


# ------------------------------------------------------------------------------------------------


def routing_of(experts, scores):
    experts, scores = torch.tensor(experts), torch.tensor(scores).double()
    return Routing(experts, scores.gather(1, experts), scores, scores.log())


def test_the_balancing_loss_is_one_when_even_and_more_when_not():
    even = routing_of([[0], [1]], [[0.5, 0.5], [0.5, 0.5]])
    assert load_balancing_loss(even) == pytest.approx(1)
    favourite = routing_of([[0], [0]], [[0.9, 0.1], [0.7, 0.3]])
    assert load_balancing_loss(favourite) == pytest.approx(2 * (1.0 * 0.8))
    mixed = routing_of([[0], [0], [1]], [[0.9, 0.1], [0.7, 0.3], [0.2, 0.8]])
    assert load_balancing_loss(mixed) == pytest.approx(2 * (2 / 3 * 0.6 + 1 / 3 * 0.4))
    elsewhere = torch.tensor([1, 3])  # what others chose too: only the scores are of these tokens
    assert load_balancing_loss(mixed, elsewhere) == pytest.approx(2 * (0.25 * 0.6 + 0.75 * 0.4))
    unnormalised = mixed._replace(scores=mixed.scores * torch.tensor([[1.0], [2.0], [0.5]]))
    assert load_balancing_loss(unnormalised) == pytest.approx(load_balancing_loss(mixed).item())
    assert max_violation(torch.tensor([2, 2])) == 0
    assert max_violation(torch.tensor([8, 0, 0, 0])) == 3


def test_a_rank_without_tokens_adds_nothing_to_the_losses():
    logits = torch.zeros(0, 3, requires_grad=True)
    loss = load_balancing_loss(route(logits, 2)) + z_loss(logits)
    loss.backward()
    assert loss == 0
    assert logits.grad.shape == (0, 3)


def test_its_gradient_pushes_down_the_scores_of_those_that_have_much():
    logits = torch.zeros(6, 3, dtype=torch.float64, requires_grad=True)
    routing = route(logits, 1)  # all are equal, so all go to expert 0
    load_balancing_loss(routing).backward()
    assert (logits.grad[:, 0] > 0).all()
    assert (logits.grad[:, 1:] < 0).all()


def test_the_z_loss_is_the_mean_square_of_logsumexp():
    logits = logits_of(7, 4)
    wanted = sum(math.log(sum(map(math.exp, row))) ** 2 for row in logits.tolist()) / 7
    assert z_loss(logits) == pytest.approx(wanted)


def test_a_bias_goes_up_for_those_below_the_mean_and_evens_out_a_router():
    bias = torch.tensor([0.0, 0.5, -0.5, 0.0])
    update_bias(bias, torch.tensor([9, 1, 2, 4]), speed=0.25)
    assert bias.tolist() == [-0.25, 0.75, -0.25, 0.0]
    logits = logits_of(400, 8) + torch.arange(8) / 4
    bias = torch.zeros(8)
    before = max_violation(route(logits, 2, "sigmoid", bias).counts)
    for _ in range(300):
        update_bias(bias, route(logits, 2, "sigmoid", bias).counts, speed=0.005)
    assert before > 0.8
    assert max_violation(route(logits, 2, "sigmoid", bias).counts) < 0.1


# ------------------------------------------------------------------------------------------------


def test_first_choices_are_served_first_then_in_the_order_of_tokens():
    experts = torch.tensor([[0, 1], [0, 2], [1, 0], [0, 1]])
    kept = within_capacity(experts, 3, capacity=2)
    assert kept.tolist() == [[True, True], [True, True], [True, False], [False, False]]
    assert capacity_of(tokens=10, experts=4, top_k=2, factor=1.0) == 5
    assert capacity_of(tokens=10, experts=4, top_k=2, factor=1.25) == 7  # 6.25 and room for it


EXPERTS, WIDTH, TOP_K = 6, 4, 2


def scaled(rows, plan, first):
    """Experts that are easy to foretell: number e multiplies by e + 1."""
    factors = torch.arange(len(plan.per_expert)) + first + 1
    return rows * factors.repeat_interleave(torch.tensor(plan.per_expert)).unsqueeze(1)


def plans():
    """What tokens get back: dropless, with choices left out, and padded to a capacity."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    tokens = 5
    x = torch.randn(tokens, WIDTH, generator=torch.Generator().manual_seed(rank)).double()
    routing = route(logits_of(tokens, EXPERTS, seed=rank), TOP_K)
    kept = within_capacity(routing.experts, EXPERTS, 1)
    of_choices = routing.weights * (routing.experts + 1)  # (T, k)
    found = {}
    for name, plan, served in (
        ("dropless", plan_dispatch(routing.experts, EXPERTS), torch.ones_like(kept)),
        ("kept", plan_dispatch(routing.experts, EXPERTS, kept=kept), kept),
        ("padded", plan_with_capacity(routing.experts, EXPERTS, 1), kept),
    ):
        own = x.clone().requires_grad_()
        rows = dispatch(own, plan)
        y = combine(scaled(rows, plan, rank * EXPERTS // ranks), plan, routing.weights)
        y.sum().backward()
        scale = (of_choices * served).sum(1, keepdim=True)  # (T, 1)
        torch.testing.assert_close(y, x * scale)
        torch.testing.assert_close(own.grad, scale.expand_as(x))
        assert plan.dropped == int((~served).sum())
        found[name] = (plan.dropped, plan.send, plan.receive, plan.per_expert)
    return found, routing.counts.tolist()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_plans_bring_every_token_what_its_experts_made(ranks):
    results = collect(plans, ranks)
    each = EXPERTS // ranks
    for rank, (found, _) in enumerate(results):
        assert found["dropless"][0] == 0
        assert found["kept"][0] == found["padded"][0] > 0
        assert found["padded"][1] == found["padded"][2] == (each,) * ranks
        assert found["padded"][3] == (ranks,) * each
        counts = torch.tensor([counts for _, counts in results])  # (n, E)
        own = slice(rank * each, (rank + 1) * each)
        assert found["dropless"][1] == tuple(counts[rank].view(ranks, each).sum(1).tolist())
        assert found["dropless"][2] == tuple(counts[:, own].sum(1).tolist())
        assert found["dropless"][3] == tuple(counts[:, own].sum(0).tolist())


# ------------------------------------------------------------------------------------------------


def totals():
    return total_counts(torch.tensor([1, dist.get_rank()])).tolist()


def refused(name):
    x = torch.zeros(3, 2)
    attempts = {
        "few": lambda: Experts(1, 4),
        "odd": lambda: Experts(7, 4),
        "sizes": lambda: all_to_all(x, [1, 1], [1, 1]),
        "ranks": lambda: all_to_all(x, [3], [3]),
        "rows": lambda: Experts(4, 2)(x, [1, 1]),
    }
    attempts[name]()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("few", "1 experts are fewer than the 2 ranks"),
        ("odd", "7 experts are not a multiple of the 2 ranks"),
        ("sizes", "2 rows should be sent, and there are 3"),
        ("ranks", "1 sizes to send and 1 to receive, 2 ranks"),
        ("rows", "3 rows for 2 experts, and sizes of 2 rows for 2"),
    ],
)
def test_what_does_not_fit_is_refused_with_both_numbers(name, words):
    with pytest.raises(RankError, match=words):
        collect(refused, 2, (name,))


def test_counts_are_added_up_over_the_ranks():
    assert list(collect(totals, 3)) == [[3, 3]] * 3


@pytest.mark.parametrize(
    ("attempt", "words"),
    [
        (lambda: route(torch.zeros(2, 4), 5), "5 of 4 experts"),
        (lambda: route(torch.zeros(2, 4), 0), "0 of 4 experts"),
        (lambda: route(torch.zeros(2, 4), 1, "relu"), "'relu' is none of softmax, sigmoid"),
        (lambda: capacity_of(4, 2, 1, 0.0), "more than 0, and is 0.0"),
    ],
)
def test_bad_arguments_are_named(attempt, words):
    with pytest.raises(ValueError, match=words):
        attempt()
