"""f and g of Megatron-LM: operators that say themselves what happens backward.

megatron_f(x) -> x, the same on every rank; backward adds up the gradients of all ranks
megatron_g(x) -> the sum of x over the ranks; backward passes the gradient on as it is

Both leave their argument, and the gradient they are handed, as they are: others hold them too.
"""

import random
from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from .support import (
    ALL_REDUCE,
    BACKWARD,
    FORWARD,
    Exact,
    layer_pass,
    messages_of,
    normal,
    wrong_values,
)


def _cases(rng: random.Random) -> list[Case]:
    cases = []
    for ranks, shape in ((2, (3,)), (3, (2, 5)), (4, (1, 3, 2)), (1, (4,))):
        inputs = normal(rng, *[shape] * ranks)
        weights = normal(rng, *[shape] * ranks)
        label = f"a tensor of shape {shape} on {ranks} rank{'s' * (ranks > 1)}"
        cases.append(Case(ranks, label, {"inputs": inputs, "weights": weights}))
    return cases


def _f_on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    x, weights = case.data["inputs"][0], case.data["weights"][dist.get_rank()]
    return layer_pass(lambda leaf: answer(leaf["x"]), {"x": x}, weights, residual="x")


def _judge_f(case: Case, observation: Observation) -> Finding | None:
    x, weights, t = case.data["inputs"][0], case.data["weights"], case.world_size
    total = sum(weights)
    exact = Exact(
        [x] * t,
        [{"x": own + total} for own in weights],
        [{"the sum over the ranks: forward, f does nothing": x * t}] * t if t > 1 else [],
        [
            {
                "x": {
                    "that of this rank alone: backward, f adds up over all ranks": own + own,
                    "this: in y = x + f(x) both summands are handed the same gradient, and it was "
                    "summed in place, for the residual branch too": total + total,
                    "the average over the ranks, where their sum is asked": own + total / t,
                    "that of the residual branch alone: f(x) is cut off from x": own,
                }
            }
            for own in weights
        ]
        if t > 1
        else [],
    )
    rule = "f does nothing forward, and all-reduces the gradient backward"
    return (
        wrong_values(case, observation, exact)
        or messages_of(observation, t, FORWARD, [], rule)
        or messages_of(observation, t, BACKWARD, [("all_reduce", x.nbytes)], rule)
    )


# ---------------------------------------------------------------------------------------------


def _g_on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    x, weights = case.data["inputs"][dist.get_rank()], case.data["weights"][0]
    return layer_pass(lambda leaf: answer(leaf["x"]), {"x": x}, weights)


def _judge_g(case: Case, observation: Observation) -> Finding | None:
    inputs, weights, t = case.data["inputs"], case.data["weights"][0], case.world_size
    total = sum(inputs)
    looks = [
        {
            "this rank's own summand: forward, g adds up over all ranks": own,
            "the average over the ranks, and their sum is asked": total / t,
        }
        for own in inputs
    ]
    exact = Exact([total] * t, [{"x": weights}] * t, looks if t > 1 else [])
    rule = "g all-reduces forward, and does nothing backward"
    return (
        wrong_values(case, observation, exact)
        or messages_of(observation, t, FORWARD, [("all_reduce", total.nbytes)], rule)
        or messages_of(observation, t, BACKWARD, [], rule)
    )


MEGATRON_F = Exercise(
    name="megatron_f",
    signature="(x)",
    notebook="04_tensor_parallel",
    cases=_cases,
    on_rank=_f_on_rank,
    judge=_judge_f,
    hints=(
        """
        A class derived from torch.autograd.Function has two static methods, forward(ctx, x) and
        backward(ctx, gradient). What does each have to do for f? Which of them communicates?
        """,
        """
        forward returns x (x.view_as(x)). backward returns the sum of `gradient` over the ranks.
        dist.all_reduce works in place, and the tensor `gradient` may belong to others as well:
        reduce a clone.
        """,
        """
        class F(torch.autograd.Function): forward returns x.view_as(x); backward makes total =
        gradient.clone(), calls dist.all_reduce(total) and returns total. megatron_f(x) returns
        F.apply(x).
        """,
    ),
    passed="nothing forward, one all-reduce backward, and the residual keeps its own gradient",
    allowed=ALL_REDUCE,
)

MEGATRON_G = Exercise(
    name="megatron_g",
    signature="(x)",
    notebook="04_tensor_parallel",
    cases=_cases,
    on_rank=_g_on_rank,
    judge=_judge_g,
    hints=(
        """
        The other way round than f. If y = x_0 + x_1 + ..., what is the derivative of y by x_0?
        """,
        """
        forward returns the sum of x over the ranks, of a clone, since x may be needed elsewhere.
        backward returns its gradient as it is: every rank already has the gradient of the sum.
        """,
        """
        class G(torch.autograd.Function): forward makes total = x.clone(), calls
        dist.all_reduce(total) and returns total; backward returns gradient. megatron_g(x) returns
        G.apply(x).
        """,
    ),
    passed="one all-reduce forward, nothing backward",
    allowed=ALL_REDUCE,
)
