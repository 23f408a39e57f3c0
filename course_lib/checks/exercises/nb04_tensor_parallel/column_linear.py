"""A linear layer split by columns. torch keeps A transposed: weight is (N, K).

column_linear(x, weight, bias) -> this rank's columns of x A + b
    x (B, K), weight (N, K) and bias (N,) are whole on every rank; the result is (B, N/t). Nothing
    is sent, and only the rank's own part is computed.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from ._linears import linear_cases
from ._support import (
    Exact,
    layer_pass,
    parts,
    work,
    wrong_values,
)


def _column_on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    data = case.data
    weights = parts(data["weights"], case.world_size, -1)[dist.get_rank()]
    return layer_pass(
        lambda leaf: answer(leaf["x"], leaf["weight"], leaf["bias"]),
        {name: data[name] for name in ("x", "weight", "bias")},
        weights,
        gradients=False,
    )


def _judge_column(case: Case, observation: Observation) -> Finding | None:
    data, t = case.data, case.world_size
    y = data["x"] @ data["weight"].T + data["bias"]
    without = data["x"] @ data["weight"].T
    outputs = parts(y, t, -1)
    looks = [
        {
            "the whole output: keep only this rank's columns": y,
            "right but for the bias: it has columns as well": parts(without, t, -1)[rank],
            f"columns {rank}, {rank + t}, ...: a rank's columns lie side by side": y[:, rank::t],
            "right but for the bias, which is that of rank 0's columns": parts(without, t, -1)[rank]
            + data["bias"][: len(data["bias"]) // t],
            f"right but for the bias, which is divided by {t}: cut up its columns": parts(
                without, t, -1
            )[rank]
            + parts(data["bias"], t, 0)[rank] / t,
            **{f"what rank {r} should return": outputs[r] for r in range(t) if r != rank},
        }
        for rank in range(t)
    ]
    for rank, seen in enumerate(observation.values):
        got = seen["output"]
        if t > 1 and isinstance(got, torch.Tensor) and got.shape == y.shape:
            return Finding(
                "this is the whole output: return only this rank's columns, the layer behind "
                "takes them as they are",
                rank,
                expected=f"a tensor of shape {tuple(outputs[rank].shape)}",
                got=f"a tensor of shape {tuple(got.shape)}",
            )
    batch, inputs = data["x"].shape
    return wrong_values(case, observation, Exact(outputs, [{}] * t, looks)) or work(
        observation,
        2 * batch * inputs * len(data["weight"]) // t,
        "cut the weight before the product, not the output after it",
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(x, weight, bias)",
    cases=linear_cases,
    on_rank=_column_on_rank,
    judge=_judge_column,
    hints=(
        """
        A column of A makes one element of the output, and torch keeps the columns of A as the rows
        of `weight`. Which rows of `weight` are this rank's? Which elements of `bias`?
        """,
        """
        weight.chunk(t)[rank] are this rank's rows, t the world size and rank its rank. The bias is
        cut in the same way. Cut first, multiply afterwards.
        """,
        """
        t, rank = dist.get_world_size(), dist.get_rank(); return x @ weight.chunk(t)[rank].T +
        bias.chunk(t)[rank].
        """,
    ),
    passed="each rank computes its N/t columns, and nothing is sent",
    contract=Contract(
        takes="x (B, K), weight (N, K) and bias (N,), whole on every rank; t divides N",
        gives="the result has x's dtype",
        allowed=frozenset(),
        sends="your function sends nothing",
        holds="only the rank's own part is computed",
    ),
)
