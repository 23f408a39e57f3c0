"""Two precisions: fp32 masters of bfloat16 parameters.

master_weights(model, make_optimizer) -> step
    The model is bfloat16. step() moves fp32 copies of the parameters, with fp32 gradients and
    optimizer state, and rounds them into the model. Between steps no fp32 gradient is kept.
"""

from collections.abc import Callable
from typing import Any

from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from ._precision import (
    cases,
    held,
    train,
    values,
    wrong_memory,
)


def _masters_on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    return train(case, answer)


def _judge_masters(case: Case, observation: Observation) -> Finding | None:
    seen = observation.values[0]
    return values(case, seen) or wrong_memory(case, seen)


EXERCISE = Exercise(
    module=__name__,
    signature="(model, make_optimizer)",
    cases=cases,
    on_rank=_masters_on_rank,
    judge=_judge_masters,
    hints=(
        """
        Copies first: one fp32 parameter for each of the model's that learns, and the optimizer
        has the copies. A step goes down (gradients to fp32) and up again (result to bfloat16).
        """,
        """
        copies = [nn.Parameter(p.detach().float()) for p in own]. In step: give each copy its
        parameter's gradient as fp32, optimizer.step(), copy back with p.copy_(copy) under
        torch.no_grad(), which rounds; then set the copies' .grad to None.
        """,
        """
        own = [p for p in model.parameters() if p.requires_grad]; optimizer =
        make_optimizer(copies). def step(): for p, copy in zip(own, copies): copy.grad =
        p.grad.float(). optimizer.step(). with torch.no_grad(): for p, copy: p.copy_(copy);
        copy.grad = None. return step.
        """,
    ),
    passed="updates too small for bfloat16 add up, at 16 bytes per parameter",
    contract=Contract(
        changes=("model",),
        takes="a bfloat16 model, with frozen and shared parameters",
        holds="between steps there are, beside the model and its gradients, an fp32 copy of what "
        "learns and the optimizer's state",
        held=lambda case, rank: held(case, gradients=True),
        allowed=frozenset(),
    ),
)
