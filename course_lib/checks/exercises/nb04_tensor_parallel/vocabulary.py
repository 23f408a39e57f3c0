"""The two ends of a language model, split by vocabulary.

vocab_embedding(tokens, rows) -> (B, T, C), whole on every rank
    tokens (B, T) are the same everywhere; rows (V/t, C) are this rank's of the V: rank r has those
    of the symbols r V/t to (r+1) V/t - 1. One all-reduce.
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
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from .support import (
    ALL_REDUCE,
    BACKWARD,
    FORWARD,
    Exact,
    layer_pass,
    messages_of,
    normal,
    parts,
    wrong_values,
)


def _symbols(rng: random.Random, vocab: int, ranks: int, shape: tuple[int, int]) -> torch.Tensor:
    """Symbols of every rank, the first and the last of its range among them."""
    size = vocab // ranks
    edges = [symbol for r in range(ranks) for symbol in (r * size, (r + 1) * size - 1)]
    count = shape[0] * shape[1]
    found = (edges + [rng.randrange(vocab) for _ in range(count)])[:count]
    rng.shuffle(found)
    return torch.tensor(found).view(shape)


def _embedding_cases(rng: random.Random) -> list[Case]:
    cases = []
    for ranks, vocab, shape in ((2, 6, (1, 5)), (3, 12, (2, 4)), (4, 8, (2, 5)), (1, 3, (1, 4))):
        rows, weights = normal(rng, (vocab, 3), (*shape, 3))
        data = {"tokens": _symbols(rng, vocab, ranks, shape), "rows": rows, "weights": weights}
        label = f"{vocab} symbols over {ranks} rank{'s' * (ranks > 1)}"
        cases.append(Case(ranks, label, data))
    return cases


def _embedding_on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    data = case.data
    rows = parts(data["rows"], case.world_size, 0)[dist.get_rank()]
    return layer_pass(
        lambda leaf: answer(leaf["tokens"], leaf["rows"]),
        {"tokens": data["tokens"], "rows": rows},
        data["weights"],
    )


def _judge_embedding(case: Case, observation: Observation) -> Finding | None:
    data, t = case.data, case.world_size
    rows = data["rows"].clone().requires_grad_()
    output = F.embedding(data["tokens"], rows)
    (output * data["weights"]).sum().backward()
    output, size = output.detach(), len(rows) // t
    looks = []
    for rank in range(t):
        mine = (data["tokens"] // size == rank).unsqueeze(-1)
        looks.append({"what this rank has rows for: g is missing": output * mine} if t > 1 else {})
    clamped = sum(
        F.embedding((data["tokens"] - r * size).clamp(0, size - 1), part)
        for r, part in enumerate(parts(data["rows"], t, 0))
    )
    wrapped = sum(F.embedding(data["tokens"] % size, part) for part in parts(data["rows"], t, 0))
    for look in looks if t > 1 else []:
        unzeroed = "a sum of several rows: a rank puts zeros where the symbol is not its own"
        look |= {unzeroed: clamped, f"{unzeroed} (modulo is no way round)": wrapped}
    gradients = [{"rows": part} for part in parts(rows.grad, t, 0)]
    return (
        wrong_values(case, observation, Exact([output] * t, gradients, looks))
        or messages_of(
            observation,
            t,
            FORWARD,
            [("all_reduce", output.nbytes)],
            "one all-reduce puts the rows of all ranks together",
        )
        or messages_of(observation, t, BACKWARD, [], "every rank has the gradient of its rows")
    )


# ---------------------------------------------------------------------------------------------


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
        label = f"{vocab} symbols over {ranks} rank{'s' * (ranks > 1)}" + ", huge logits" * large
        data = {
            "logits": logits * size + (1000 if large else 0),
            "targets": _symbols(rng, vocab, ranks, shape),
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
            "that of this rank's symbols alone: sum exp over all ranks": _own_loss(
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
        "largest logit, sum of exponentials and the target's logit are three numbers a token; the "
        f"{vocab} logits of a token stay where they are"
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


VOCAB_EMBEDDING = Exercise(
    name="vocab_embedding",
    signature="(tokens, rows)",
    notebook="04_tensor_parallel",
    cases=_embedding_cases,
    on_rank=_embedding_on_rank,
    judge=_judge_embedding,
    hints=(
        """
        Each token's row is on exactly one rank. If all other ranks have zeros in its place, what
        does the sum over the ranks give?
        """,
        """
        start = rank * len(rows). A token is this rank's if start <= token < start + len(rows). Look
        up token - start for these and anything (row 0, say) for the others, and put zeros there
        before the sum. The sum is g.
        """,
        """
        local = tokens - dist.get_rank() * len(rows); other = (local < 0) | (local >= len(rows));
        found = F.embedding(local.masked_fill(other, 0), rows); return
        megatron_g(found.masked_fill(other.unsqueeze(-1), 0)).
        """,
    ),
    passed="one all-reduce, and no rank holds more than V/t rows",
    allowed=ALL_REDUCE,
)

VOCAB_CROSS_ENTROPY = Exercise(
    name="vocab_cross_entropy",
    signature="(logits, targets)",
    notebook="04_tensor_parallel",
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
    passed="three numbers a token travel, and the logits stay where they are",
    allowed=ALL_REDUCE,
    points=2,
)
