"""The loss of a language model, split by vocabulary.

vocab_cross_entropy(logits, targets) -> mean loss over all tokens, the same on every rank
    logits (B, T, V/t) are this rank's, targets (B, T) the same everywhere. At most four numbers per
    token are all-reduced, never the logits.
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
from course_lib.checks.profiler_labels import BACKWARD, FORWARD
from course_lib.checks.rank_inputs import along
from course_lib.checks.reference import added
from course_lib.text import counted

from ._support import (
    ALL_REDUCE,
    Exact,
    Tensors,
    collectives,
    layer_pass,
    messages_of,
    parts,
    wrong_values,
)
from ._vocabulary import symbols


def _loss_cases(rng: random.Random) -> list[Case]:
    cases = []
    for ranks, vocab, shape, size in (
        (2, 16, (1, 3), 1.0),
        (3, 24, (2, 3), 5.0),
        (4, 4, (2, 5), 3.0),
        (1, 4, (1, 3), 1.0),
        (2, 16, (2, 2), 1000.0),
        (2, 8, (1, rng.randint(2, 6)), -1000.0),
    ):
        (logits,) = normal(rng, (*shape, vocab))
        words = {1000.0: ", huge logits", -1000.0: ", all logits far below zero"}.get(size, "")
        label = f"{vocab} symbols over {counted(ranks, 'rank')}{words}"
        data = {
            "logits": logits * max(size, 1.0) + (size if words else 0),
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
        longer=("logits", "targets"),
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
                f"not finite: {_not_finite(got.flatten())}",
                rank,
                expected=f"{loss:.6g}",
                got=f"{got.flatten()[0]:.6g}",
            )
    summed = {"the sum over the tokens, and the mean is expected": each.sum().detach()}
    looks = [
        {
            **summed,
            "only that of this rank's symbols: sum exp over all ranks": _own_loss(
                parts(data["logits"], t, -1)[r], data["targets"], r
            ),
            **_mistakes(data["logits"], data["targets"], t),
        }
        if t > 1
        else summed
        for r in range(t)
    ]
    gradients = [{"logits": part} for part in parts(logits.grad, t, -1)]
    if finding := wrong_values(case, observation, Exact([loss] * t, gradients, looks)):
        return finding
    most = 4 * targets.numel() * logits.element_size()
    rule = (
        "largest logit, sum of exponentials and the target's logit are three numbers per token; "
        f"the {vocab} logits of a token stay where they are"
    )
    for rank in range(t):
        reduced = sum(event.nbytes for event in collectives(observation, rank, FORWARD))
        if reduced > most:
            return Finding(
                f"the result is right, but more is all-reduced than has to be: {rule}",
                rank,
                expected=f"at most four numbers per token, {most} bytes",
                got=f"{reduced} bytes",
            )
    return messages_of(observation, t, BACKWARD, [], "the gradient of a logit needs no other rank")


def _own_loss(logits: torch.Tensor, targets: torch.Tensor, rank: int) -> torch.Tensor:
    """What comes out if the sum of exponentials stays on this rank and all else is right."""
    size = logits.shape[-1]
    total = logits.logsumexp(-1)
    column = (targets - rank * size).clamp(0, size - 1)
    own = logits.gather(-1, column.unsqueeze(-1)).squeeze(-1)
    return (total - own * (targets // size == rank)).mean()


def _not_finite(got: torch.Tensor) -> str:
    if bool((got == float("-inf")).any()):
        return (
            "log of 0 is -inf, so all exponentials of a token were 0. Subtract the largest logit "
            "of each token by itself, whatever its sign; or was a rank's log taken before the sum?"
        )
    return (
        "exp of a large logit overflows. Subtract the largest logit of each token before, the "
        "largest on all ranks"
    )


def _mistakes(logits: torch.Tensor, targets: torch.Tensor, t: int) -> Tensors:
    """What known mistakes give on this very input."""
    size, ranks = logits.shape[-1] // t, range(t)
    own = parts(logits, t, -1)
    largest = logits.amax(-1)
    columns = [(targets - r * size) for r in ranks]
    mine = [(c >= 0) & (c < size) for c in columns]

    def at_target(z: torch.Tensor, r: int) -> torch.Tensor:
        return at(z, columns[r].clamp(0, size - 1)) * mine[r]

    def at(z: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
        return z.gather(-1, column.unsqueeze(-1)).squeeze(-1)

    others = {
        "the nearest of its own": [c.clamp(0, size - 1) for c in columns],
        "its first": [c * m for c, m in zip(columns, mine, strict=True)],
        "one by modulo": [targets % size] * t,
    }

    shifted = [part - largest.unsqueeze(-1) for part in own]
    by_rank = [part - part.amax(-1, keepdim=True) for part in own]
    total = added(z.exp().sum(-1) for z in shifted)
    target = added(at_target(z, r) for r, z in enumerate(shifted))
    return {
        "what comes out if each rank subtracts the largest of its own logits: they must all "
        "subtract the same": (
            added(z.exp().sum(-1) for z in by_rank).log()
            - added(at_target(z, r) for r, z in enumerate(by_rank))
        ).mean(),
        "a sum of logarithms: add the exponentials up over the ranks, then take the log": (
            added(z.exp().sum(-1).log() for z in shifted) - target
        ).mean(),
        "what comes out if the largest is subtracted in the sum only: subtract it from the "
        "target's logit as well": (
            total.log() - added(at_target(p, r) for r, p in enumerate(own))
        ).mean(),
        **{
            "what comes out if ranks that do not have the target add some other logit "
            f"({which}): they add zero": (
                total.log() - added(at(z, c) for z, c in zip(shifted, chosen, strict=True))
            ).mean()
            for which, chosen in others.items()
        },
        "log of the sum without the target's logit": total.log().mean(),
        "the loss with the wrong sign": (target - total.log()).mean(),
    }


EXERCISE = Exercise(
    module=__name__,
    signature="(logits, targets)",
    cases=_loss_cases,
    on_rank=_loss_on_rank,
    own={"logits": along(-1)},
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
    contract=Contract(
        takes="logits (B, T, V/t) of any size and sign, targets (B, T), the same on every rank",
        gives="the result has the logits' dtype",
        allowed=ALL_REDUCE,
        sends="at most four numbers per token travel forward, and nothing backward",
    ),
    points=2,
)
