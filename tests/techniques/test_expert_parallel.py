"""A mixture of experts over n ranks is the mixture of one process: each token, every gradient."""

import itertools

import pytest
import torch
import torch.distributed as dist

from course_lib.models.mixture_of_experts import Mixture
from course_lib.ranks import collect
from course_lib.techniques.expert_parallel import (
    MixtureOfExperts,
    dense_parameters,
    expert_shares_of,
    gather_experts,
    load_whole_experts,
)

WIDTH, INNER = 6, 10
EXACT = 1e-10
EXPERTS = {1: 6, 2: 6, 3: 6, 4: 8, 5: 10}

OPTIONS = [
    {"top_k": 1},
    {"top_k": 2, "balance": 0.5, "z": 0.1},
    {"top_k": 2, "shared": 7},
    {"top_k": 3, "gate": "sigmoid", "balance": 0.5, "shared": 7},
]


def signal(*shape, seed=2):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def tokens_of(ranks, kind):
    """How many tokens each rank has; one of them may have none."""
    even = [8] * ranks
    return {"even": even, "uneven": [(7 * r + 3) % 10 for r in range(ranks)], "one": [8] * ranks}[
        kind
    ]


def whole_mixture(experts, kind, options):
    torch.manual_seed(1)
    whole = Mixture(WIDTH, experts, inner=INNER, **options).double()
    with torch.no_grad():
        for parameter in whole.parameters():
            parameter.normal_()
        if kind == "one":  # all tokens choose the last experts first, and the others have none
            whole.router.bias[-options["top_k"] :] = 10
    return whole


def apart(kind, options):
    """By how much this rank's outputs and gradients differ: {name: largest difference}."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    experts = EXPERTS[ranks]
    whole = whole_mixture(experts, kind, options)
    parallel = MixtureOfExperts(WIDTH, experts, inner=INNER, **options).double()
    load_whole_experts(parallel, whole.state_dict())

    counts = tokens_of(ranks, kind)
    if kind == "uneven":
        parallel.balance = whole.balance = parallel.z = whole.z = 0  # a mean of means is another
    start = sum(counts[:rank])
    mine = slice(start, start + counts[rank])
    x = signal(sum(counts), WIDTH).requires_grad_()
    weights = signal(sum(counts), WIDTH, seed=3)
    own_x = x.detach()[mine].clone().requires_grad_()
    y, own_y = whole(x), parallel(own_x)
    ((y * weights).sum() + ranks * whole.extra_loss).backward()
    (own_y * weights[mine]).sum().backward()
    for parameter in dense_parameters(parallel):
        dist.all_reduce(parameter.grad)

    shares = expert_shares_of(parallel)
    pairs = {"output": (own_y, y[mine]), "input": (own_x.grad, x.grad[mine])}
    for name, parameter in parallel.named_parameters():
        wanted = whole.get_parameter(name).grad
        pairs[name] = parameter.grad, shares[name].of(wanted) if name in shares else wanted
    gathered = gather_experts(parallel)
    pairs |= {
        f"whole {name}": (gathered[name], value) for name, value in whole.state_dict().items()
    }
    found = {name: (a - b).abs().max().item() for name, (a, b) in pairs.items() if a.numel()}
    return found, parallel.routing.counts.tolist()


def all_apart():
    kinds = ("even", "uneven", "one")
    return {
        (kind, number): apart(kind, options)
        for kind, (number, options) in itertools.product(kinds, enumerate(OPTIONS))
    }


@pytest.mark.parametrize("ranks", sorted(EXPERTS))
def test_every_token_and_every_gradient_is_that_of_one_process(ranks):
    results = collect(all_apart, ranks, timeout=60)
    for found in results:
        assert len(found) == 12
        for case, (differences, counts) in found.items():
            assert max(differences.values()) < EXACT, (case, differences)
            assert len(differences) >= 6
            if case[0] == "one":
                top_k = OPTIONS[case[1]]["top_k"]
                assert counts == [0] * (EXPERTS[ranks] - top_k) + [8] * top_k
    assert not results.trace.warnings
