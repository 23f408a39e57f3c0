"""f of Megatron-LM: an operator that says itself what happens backward.

megatron_f(x) -> x, the same on every rank; backward adds up the gradients of all ranks

It leaves its argument, and the gradient it is handed, as they are: others hold them too.
"""

from collections.abc import Callable
from typing import Any

import torch.distributed as dist

from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.profiler_labels import BACKWARD, FORWARD
from course_lib.checks.rank_inputs import by_rank

from ._conjugates import conjugate_cases
from ._support import (
    Exact,
    layer_pass,
    messages_of,
    wrong_values,
)


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
                    "only that of this rank: backward, f adds up over all ranks": own + own,
                    "that of a gradient summed in place, for the residual branch too: in y = x + "
                    "f(x) both summands are handed the same one; or a hook on x itself, which is "
                    "handed that of both": total + total,
                    "the average over the ranks, where their sum is expected": own + total / t,
                    "that of only the residual branch: f(x) is cut off from x, or its backward "
                    "returns nothing": own,
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


EXERCISE = Exercise(
    module=__name__,
    signature="(x)",
    cases=conjugate_cases,
    on_rank=_f_on_rank,
    own={"weights": by_rank},
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
    contract=Contract(
        takes="x of any shape, even none (a single number)",
        gives="the gradient that backward is handed stays as it was",
        allowed=frozenset({"all_reduce"}),
        sends="there is none forward, and one of x's size backward",
    ),
)
