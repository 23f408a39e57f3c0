"""g of Megatron-LM: an operator that says itself what happens backward.

megatron_g(x) -> the sum of x over the ranks; backward passes the gradient on as it is

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


def _g_on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    x, weights = case.data["inputs"][dist.get_rank()], case.data["weights"][0]
    return layer_pass(lambda leaf: answer(leaf["x"]), {"x": x}, weights)


_CUT = (
    "since a plain dist collective tells autograd nothing. Forward, g's own Function adds up; its "
    "backward hands on the gradient as it came"
)


def _judge_g(case: Case, observation: Observation) -> Finding | None:
    inputs, weights, t = case.data["inputs"], case.data["weights"][0], case.world_size
    total = sum(inputs)
    looks = [
        {
            "this rank's own summand: forward, g adds up over all ranks": own,
            "the average over the ranks, and their sum is expected": total / t,
        }
        for own in inputs
    ]
    gradient_looks = [
        {"x": {"the average over the ranks: the gradient passes as it is": weights / t}}
    ] * t
    exact = Exact(
        [total] * t,
        [{"x": weights}] * t,
        looks if t > 1 else [],
        gradient_looks if t > 1 else [],
        missing={"x": _CUT},
    )
    rule = "g all-reduces forward, and does nothing backward"
    return (
        wrong_values(case, observation, exact)
        or messages_of(observation, t, FORWARD, [("all_reduce", total.nbytes)], rule)
        or messages_of(observation, t, BACKWARD, [], rule)
    )


EXERCISE = Exercise(
    module=__name__,
    signature="(x)",
    cases=conjugate_cases,
    on_rank=_g_on_rank,
    own={"inputs": by_rank},
    judge=_judge_g,
    hints=(
        """
        The other way round from f. If y = x_0 + x_1 + ..., what is the derivative of y with respect
        to x_0?
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
    contract=Contract(
        takes="x of any shape, even none (a single number)",
        allowed=frozenset({"all_reduce"}),
        sends="there is one of x's size forward, and none backward",
    ),
)
