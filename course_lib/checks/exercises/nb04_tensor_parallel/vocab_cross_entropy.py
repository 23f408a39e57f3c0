"""The loss of a language model, split by vocabulary.

vocab_cross_entropy(logits, targets) -> mean loss over all tokens, the same on every rank
    logits (B, T, V/t) are this rank's, targets (B, T) the same everywhere. At most four numbers a
    token are all-reduced, never the logits.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from course_lib.checks import gates
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.text import counted

from ._support import (
    ALL_REDUCE,
    BACKWARD,
    Exact,
    layer_pass,
    messages_of,
    normal,
    parts,
    wrong_values,
)
from ._vocabulary import symbols


def _loss_cases(rng: random.Random) -> list[Case]:
    cases = []
    for ranks, vocab, shape, size in (
        (2, 16, (1, 3), 1.0),
        (3, 24, (2, 3), 5.0),
        (4, 32, (2, 5), 3.0),
        (1, 4, (1, 3), 1.0),
        (2, 16, (2, 2), 1000.0),
    ):
        (logits,) = normal(rng, (*shape, vocab))
        large = size >= 1000
        label = f"{vocab} symbols over {counted(ranks, 'rank')}" + ", huge logits" * large
        data = {
            "logits": logits * size + (1000 if large else 0),
            "targets": symbols(rng, vocab, ranks, shape),
            "factor": rng.uniform(0.5, 2),
        }
        cases.append(Case(ranks, label, data))
    return cases


def _loss_on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    data = case.data
    logits = parts(data["logits"], case.world_size, -1)[dist.get_rank()]
    return layer_pass(
        lambda leaf: answer(leaf["logits"], leaf["targets"]),
        {"logits": logits, "targets": data["targets"]},
        torch.tensor(data["factor"], dtype=torch.float64),
    )


def _judge_loss(case: Case, observation: Observation) -> Finding | None:
    data, t = case.data, case.world_size
    logits = data["logits"].clone().requires_grad_()
    targets, vocab = data["targets"].flatten(), logits.shape[-1]
    each = F.cross_entropy(logits.flatten(0, 1), targets, reduction="none")
    loss = each.mean()
    (loss * data["factor"]).backward()
    loss = loss.detach()
    for rank, seen in enumerate(observation.values):
        got = seen["output"]
        if isinstance(got, torch.Tensor) and got.is_floating_point() and not got.isfinite().all():
            return Finding(
                "not finite: exp of a large logit overflows. Subtract the largest logit of each "
                "token before, the largest on all ranks",
                rank,
                expected=f"{loss:.6g}",
                got=f"{got.flatten()[0]:.6g}",
            )
    looks = [
        {
            "the sum over the tokens, and the mean is asked": each.sum().detach(),
            "only that of this rank's symbols: sum exp over all ranks": _own_loss(
                parts(data["logits"], t, -1)[r], data["targets"], r
            ),
        }
        if t > 1
        else {}
        for r in range(t)
    ]
    gradients = [{"logits": part} for part in parts(logits.grad, t, -1)]
    if finding := wrong_values(case, observation, Exact([loss] * t, gradients, looks)):
        return finding
    numbers = 4 * targets.numel() * logits.element_size()
    most = 2 * numbers * (t - 1) // t + t * logits.element_size()
    rule = (
        "largest logit, sum of exponentials and the target's logit are three numbers per token; "
        f"the {vocab} logits of a token stay where they are"
    )
    for rank in range(t):
        least = 1 if t > 1 else 0
        if finding := gates.sent(observation, rank, least, most, rule):
            return finding
    return messages_of(observation, t, BACKWARD, [], "the gradient of a logit needs no other rank")


def _own_loss(logits: torch.Tensor, targets: torch.Tensor, rank: int) -> torch.Tensor:
    """What comes out if the sum of exponentials stays on this rank and all else is right."""
    size = logits.shape[-1]
    total = logits.logsumexp(-1)
    column = (targets - rank * size).clamp(0, size - 1)
    own = logits.gather(-1, column.unsqueeze(-1)).squeeze(-1)
    return (total - own * (targets // size == rank)).mean()


EXERCISE = Exercise(
    module=__name__,
    signature="(logits, targets)",
    cases=_loss_cases,
    on_rank=_loss_on_rank,
    judge=_judge_loss,
    hints=(
        """
        loss = log(sum of exp of all logits) - logit of the target. Which of the two can be summed
        up from what each rank has? exp overflows: subtract the largest logit first, from both.
        """,
        """
        The largest logit over all ranks: dist.all_reduce(largest, dist.ReduceOp.MAX), on a detached
        copy, since the loss does not depend on it. Then g(sum of exp) and g(target's logit, zero
        where it is another rank's). With g, autograd finds the gradient by itself.
        """,
        """
        largest = logits.detach().amax(-1); all_reduce it with MAX; z = logits - largest[..., None];
        total = megatron_g(z.exp().sum(-1)); local = targets - rank * V/t; own =
        z.gather(-1, local.clamp(0, V/t - 1)[..., None])[..., 0], zeros where local is outside;
        return (total.log() - megatron_g(own)).mean().
        """,
    ),
    passed="three numbers per token travel, and the logits stay where they are",
    contract=Contract(allowed=ALL_REDUCE),
    points=2,
)
