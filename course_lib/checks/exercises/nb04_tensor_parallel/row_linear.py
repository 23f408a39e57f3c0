"""A linear layer split by rows. torch keeps A transposed: weight is (N, K).

row_linear(x_part, weight, bias) -> all of x A + b
    x_part (B, K/t) are this rank's columns of x; weight (N, K) and bias (N,) are whole on every
    rank, and the rank uses its part of weight. The result is (B, N), the same on every rank; one
    all-reduce of its size.
"""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.profiler_labels import FORWARD
from course_lib.checks.rank_inputs import along

from ._linears import linear_cases
from ._support import (
    Exact,
    layer_pass,
    messages_of,
    parts,
    work,
    wrong_values,
)


def _row_on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    data, rank = case.data, dist.get_rank()
    return layer_pass(
        lambda leaf: answer(leaf["x_part"], leaf["weight"], leaf["bias"]),
        {
            "x_part": parts(data["x"], case.world_size, -1)[rank],
            "weight": data["weight"],
            "bias": data["bias"],
        },
        data["weights"],
        longer=("x_part",),
        gradients=False,
    )


def _judge_row(case: Case, observation: Observation) -> Finding | None:
    data, t = case.data, case.world_size
    pairs = zip(parts(data["x"], t, 1), parts(data["weight"], t, 1), strict=True)
    summands = [x @ w.T for x, w in pairs]
    y = sum(summands) + data["bias"]
    apart = sum(x @ data["weight"][:, r::t].T for r, x in enumerate(parts(data["x"], t, 1)))
    looks = [
        {
            "this rank's own summand: they have to be added up over the ranks": own + data["bias"],
            "this rank's own summand, without the bias: they have to be added up over the ranks, "
            "and the bias once": own,
            f"right but for the bias: it was added on each of {t} ranks, and they were summed": (
                y + (t - 1) * data["bias"]
            ),
            "right but for the bias: add it once, after the sum": y - data["bias"],
            "the average of the summands, and a sum is expected": sum(summands) / t + data["bias"],
            f"what comes of columns r, r + {t}, ... of weight: a rank's columns lie side by side": (
                apart + data["bias"]
            ),
        }
        for own in summands
    ]
    if t == 1:
        looks = [{"right but for the bias: add it once, after the sum": y - data["bias"]}]
    batch, inputs = data["x"].shape
    return (
        wrong_values(case, observation, Exact([y] * t, [{}] * t, looks))
        or messages_of(
            observation,
            t,
            FORWARD,
            [("all_reduce", y.nbytes)],
            "one all-reduce of the output adds the summands up",
        )
        or work(
            observation,
            2 * batch * inputs * len(data["weight"]) // t,
            "each rank multiplies its own rows only",
        )
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(x_part, weight, bias)",
    cases=linear_cases,
    on_rank=_row_on_rank,
    own={"x": along(-1)},
    judge=_judge_row,
    hints=(
        """
        Row k of A is multiplied with element k of x. This rank has some elements of x; which part
        of `weight` (A transposed) belongs to them? What is the product of the two, compared with
        the whole output?
        """,
        """
        weight.chunk(t, dim=1)[rank] belongs to x_part. The product has the shape of the whole
        output, but it is one of t summands. dist.all_reduce adds them up, in place. When should the
        bias be added?
        """,
        """
        y = (x_part @ weight.chunk(t, dim=1)[rank].T).detach(); dist.all_reduce(y); return y + bias.
        Before the sum the bias would be added t times.
        """,
    ),
    passed="one all-reduce adds the summands, the bias comes once",
    contract=Contract(
        takes="x_part (B, K/t), weight (N, K) and bias (N,), the last two whole on every rank; t "
        "divides K",
        gives="the result has x's dtype",
        allowed=frozenset({"all_reduce"}),
        sends="there is one, of the result's size",
        holds="only the rank's own part is computed",
    ),
)
