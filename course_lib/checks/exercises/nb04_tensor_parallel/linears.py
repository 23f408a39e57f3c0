"""A linear layer split by columns, and by rows. torch keeps A transposed: weight is (N, K).

column_linear(x, weight, bias) -> this rank's columns of x A + b
    x (B, K), weight (N, K) and bias (N,) are whole on every rank; the result is (B, N/t). Nothing
    is sent, and only the rank's own part is computed.
row_linear(x_part, weight, bias) -> all of x A + b
    x_part (B, K/t) are this rank's columns of x; weight (N, K) and bias (N,) are whole on every
    rank, and the rank uses its part of weight. The result is (B, N), the same on every rank; one
    all-reduce of its size.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from .support import (
    ALL_REDUCE,
    FORWARD,
    Exact,
    flops,
    layer_pass,
    messages_of,
    normal,
    parts,
    wrong_values,
)


def _cases(rng: random.Random) -> list[Case]:
    sizes = [(2, 3, 4, 6), (3, 1, 9, 6), (4, 5, 8, 12), (1, 2, 3, 5)]
    cases = []
    for ranks, batch, inputs, outputs in sizes:
        x, weight, bias, weights = normal(
            rng, (batch, inputs), (outputs, inputs), (outputs,), (batch, outputs)
        )
        label = f"a {inputs} x {outputs} matrix over {ranks} rank{'s' * (ranks > 1)}"
        data = {"x": x, "weight": weight, "bias": bias, "weights": weights}
        cases.append(Case(ranks, label, data))
    return cases


def _column_on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    data = case.data
    weights = parts(data["weights"], case.world_size, -1)[dist.get_rank()]
    return layer_pass(
        lambda leaf: answer(leaf["x"], leaf["weight"], leaf["bias"]),
        {name: data[name] for name in ("x", "weight", "bias")},
        weights,
    )


def _judge_column(case: Case, observation: Observation) -> Finding | None:
    data, t = case.data, case.world_size
    y = data["x"] @ data["weight"].T + data["bias"]
    without = data["x"] @ data["weight"].T
    outputs = parts(y, t, -1)
    looks = [
        {
            "the whole output: keep this rank's columns alone": y,
            "right but for the bias: it has columns as well": parts(without, t, -1)[rank],
            **{f"what rank {r} should return": outputs[r] for r in range(t) if r != rank},
        }
        for rank in range(t)
    ]
    for rank, seen in enumerate(observation.values):
        got = seen["output"]
        if t > 1 and isinstance(got, torch.Tensor) and got.shape == y.shape:
            return Finding(
                "this is the whole output: return this rank's columns alone, the layer behind "
                "takes them as they are",
                rank,
                expected=f"a tensor of shape {tuple(outputs[rank].shape)}",
                got=f"a tensor of shape {tuple(got.shape)}",
            )
    batch, inputs = data["x"].shape
    return wrong_values(case, observation, Exact(outputs, [{}] * t, looks)) or flops(
        observation,
        2 * batch * inputs * len(data["weight"]) // t,
        "cut the weight before the product, not the output after it",
    )


# ---------------------------------------------------------------------------------------------


def _row_on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    data, rank = case.data, dist.get_rank()
    return layer_pass(
        lambda leaf: answer(leaf["x_part"], leaf["weight"], leaf["bias"]).detach(),
        {
            "x_part": parts(data["x"], case.world_size, -1)[rank],
            "weight": data["weight"],
            "bias": data["bias"],
        },
        data["weights"],
    )


def _judge_row(case: Case, observation: Observation) -> Finding | None:
    data, t = case.data, case.world_size
    pairs = zip(parts(data["x"], t, 1), parts(data["weight"], t, 1), strict=True)
    summands = [x @ w.T for x, w in pairs]
    y = sum(summands) + data["bias"]
    looks = [
        {
            "this rank's own summand: g is missing": own + data["bias"],
            "this rank's own summand, without the bias: g is missing": own,
            f"right but for the bias: it was added on each of {t} ranks, and they were summed": (
                y + (t - 1) * data["bias"]
            ),
            "right but for the bias: add it once, after the sum": y - data["bias"],
            "the average of the summands, and a sum is asked": sum(summands) / t + data["bias"],
        }
        for own in summands
    ]
    if t == 1:
        looks = [{"right but for the bias: add it once, after the sum": y - data["bias"]}]
    batch, inputs = data["x"].shape
    return (
        wrong_values(case, observation, Exact([y] * t, [{}] * t, looks))
        or flops(
            observation,
            2 * batch * inputs * len(data["weight"]) // t,
            "each rank multiplies its own rows only",
        )
        or messages_of(
            observation,
            t,
            FORWARD,
            [("all_reduce", y.nbytes)],
            "one all-reduce of the output adds the summands up",
        )
    )


COLUMN_LINEAR = Exercise(
    name="column_linear",
    signature="(x, weight, bias)",
    notebook="04_tensor_parallel",
    cases=_cases,
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
    allowed=frozenset(),
)

ROW_LINEAR = Exercise(
    name="row_linear",
    signature="(x_part, weight, bias)",
    notebook="04_tensor_parallel",
    cases=_cases,
    on_rank=_row_on_rank,
    judge=_judge_row,
    hints=(
        """
        Row k of A is multiplied with element k of x. This rank has some elements of x; which part
        of `weight` (A transposed) belongs to them? What is the product of the two, compared with
        the whole output?
        """,
        """
        weight.chunk(t, dim=1)[rank] belongs to x_part. The product has the shape of the whole
        output, but it is one of t summands. dist.all_reduce adds them up, in place. When is the
        bias to be added?
        """,
        """
        y = (x_part @ weight.chunk(t, dim=1)[rank].T).detach(); dist.all_reduce(y); return y + bias.
        Before the sum the bias would be added t times.
        """,
    ),
    passed="one all-reduce adds the summands, the bias comes once",
    allowed=ALL_REDUCE,
)
