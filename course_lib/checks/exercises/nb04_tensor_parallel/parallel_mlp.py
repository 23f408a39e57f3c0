"""The MLP of a block: columns, GeLU, rows.

parallel_mlp(x, up, up_bias, down, down_bias) -> the whole output, (B, T, C)
    x (B, T, C) is whole on every rank. This rank's parts: up (4C/t, C) with up_bias (4C/t,), down
    (C, 4C/t). down_bias (C,) is whole. One all-reduce forward and one backward.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.checks.case_inputs import normal
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.rank_inputs import along
from course_lib.checks.reference import added, gradient
from course_lib.text import counted

from ._support import (
    ALL_REDUCE,
    Exact,
    Tensors,
    layer_pass,
    one_each_way,
    parts,
    wrong_values,
)


def _cases(rng: random.Random) -> list[Case]:
    cases = []
    for ranks, batch, tokens, hidden in (
        (2, 1, 3, 2),
        (3, 2, 2, 3),
        (4, rng.randint(1, 3), 1, 5),
        (1, 2, 3, 2),
    ):
        x, up, up_bias, down, down_bias, weights = normal(
            rng,
            (batch, tokens, hidden),
            (4 * hidden, hidden),
            (4 * hidden,),
            (hidden, 4 * hidden),
            (hidden,),
            (batch, tokens, hidden),
        )
        label = f"an MLP of width {hidden} over {counted(ranks, 'rank')}"
        data = {"x": x, "up": up, "up_bias": up_bias, "down": down, "down_bias": down_bias}
        cases.append(Case(ranks, label, {**data, "weights": weights}))
    return cases


def _parts(case: Case, rank: int) -> Tensors:
    data, t = case.data, case.world_size
    return {
        "x": data["x"],
        "up": parts(data["up"], t, 0)[rank],
        "up_bias": parts(data["up_bias"], t, 0)[rank],
        "down": parts(data["down"], t, 1)[rank],
        "down_bias": data["down_bias"],
    }


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    names = ("x", "up", "up_bias", "down", "down_bias")
    return layer_pass(
        lambda leaf: answer(*(leaf[name] for name in names)),
        _parts(case, dist.get_rank()),
        case.data["weights"],
        residual="x",
    )


def _exact(case: Case) -> Exact:
    """x + MLP(x), with a leaf for every rank's copy of x, so that their parts can be told apart."""
    t, weights = case.world_size, case.data["weights"]
    ranks = [{n: p.clone().requires_grad_() for n, p in _parts(case, r).items()} for r in range(t)]
    summands = [
        F.gelu(p["x"] @ p["up"].T + p["up_bias"]) @ p["down"].T for p in ranks
    ]  # (B, T, C) each
    bias = ranks[0]["down_bias"]
    output = added(summands) + bias
    (output * weights).sum().backward()
    from_ranks = [gradient(p["x"]) for p in ranks]
    dx = weights + added(from_ranks)
    gradients = [
        {name: gradient(p[name]) for name in ("up", "up_bias", "down")}
        | {"x": dx, "down_bias": gradient(bias)}
        for p in ranks
    ]
    with torch.no_grad():
        linear = added((p["x"] @ p["up"].T + p["up_bias"]) @ p["down"].T for p in ranks)
        unbiased = added(F.gelu(p["x"] @ p["up"].T) @ p["down"].T for p in ranks)
        by_tanh = added(
            F.gelu(p["x"] @ p["up"].T + p["up_bias"], approximate="tanh") @ p["down"].T
            for p in ranks
        )
        looks = [
            {
                "this rank's own summand: g is missing": own + bias,
                "the average of the summands: their sum is expected": added(summands) / t + bias,
                "right but for the GeLU: it stands between the two layers": linear + bias,
                "that of the GeLU's approximation by tanh, and F.gelu(x) itself is expected": (
                    by_tanh + bias
                ),
                "right but for the first bias, which is missing": unbiased + bias,
                "right but for the last bias, which is missing": output - bias,
                "x + MLP(x), and only the MLP is expected: the residual sum is the caller's": (
                    output + ranks[0]["x"]
                ),
                "what comes out with f and g swapped: g(x) is t times x, and f adds nothing "
                "up forward": _swapped(p, t) + bias,
                **_cut_again(ranks, bias),
                f"right but for the last bias: it was added on each of {t} ranks and summed": (
                    output + (t - 1) * bias
                ),
            }
            for p, own in zip(ranks, summands, strict=True)
        ]
    alone = "the part that came through this rank's own columns: f is missing"
    cut = "that of only the residual branch: mlp(x) is cut off from x"
    shared = "its t-th part: was a part added on every rank before g, instead of all of it after?"
    gradient_looks = [
        {
            "x": {alone: weights + own, cut: weights},
            "down_bias": {shared: gradient(bias) / t},
        }
        for own in from_ranks
    ]
    if t == 1:
        looks, gradient_looks = [], []
    missing = {
        "down_bias": "was it added on another rank only, or detached? Add it everywhere, after g"
    }
    return Exact([output.detach()] * t, gradients, looks, gradient_looks, missing)


def _swapped(p: Tensors, t: int) -> torch.Tensor:
    return F.gelu(t * p["x"] @ p["up"].T + p["up_bias"]) @ p["down"].T


def _cut_again(ranks: list[Tensors], bias: torch.Tensor) -> Tensors:
    """What comes out if each rank cuts its part of the weights into t parts once more."""
    t = len(ranks)
    if len(ranks[0]["up"]) % t:
        return {}
    summands = [
        F.gelu(p["x"] @ parts(p["up"], t, 0)[r].T + parts(p["up_bias"], t, 0)[r])
        @ parts(p["down"], t, 1)[r].T
        for r, p in enumerate(ranks)
    ]
    return {
        "what is left when the weights are cut again: they are this rank's parts already": (
            added(summands) + bias
        )
    }


def _judge(case: Case, observation: Observation) -> Finding | None:
    return wrong_values(case, observation, _exact(case)) or one_each_way(
        observation, case.world_size, case.data["x"].nbytes
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(x, up, up_bias, down, down_bias)",
    cases=_cases,
    on_rank=_on_rank,
    own={"up": along(0), "up_bias": along(0), "down": along(1)},
    judge=_judge,
    hints=(
        """
        Columns, then GeLU, then rows: what a rank has after the GeLU is just what its rows of the
        second layer need. Where does x become different work on every rank, and where does it
        become one tensor again?
        """,
        """
        f stands where the whole x goes into the columns, g where the summands of the rows are
        added up. Between the two nothing is sent. The last bias comes after g.
        """,
        """
        h = F.gelu(megatron_f(x) @ up.T + up_bias); return megatron_g(h @ down.T) + down_bias.
        """,
    ),
    passed="one all-reduce forward, one backward, and every gradient is that of one process",
    contract=Contract(
        takes="x of any sizes B, T and C, whole on every rank; this rank's parts of the weights",
        allowed=ALL_REDUCE,
        sends="there is one of x's size forward, and one backward",
    ),
    points=2,
)
