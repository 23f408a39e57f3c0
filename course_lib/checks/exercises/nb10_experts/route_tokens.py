"""Who computes a token: its k best experts, with what weight, and how many tokens that makes.

route_tokens(logits, k) -> (experts, weights, counts)
    logits (T, E), of T tokens for E experts. experts (T, k) int64, the best first. weights (T, k):
    their probabilities by a softmax over all E, divided by their sum; with k = 1 the probability as
    it is. counts (E,) int64: how many of the T k choices are each expert's.
"""

import random
from collections.abc import Callable
from typing import Any

import torch

from course_lib.checks import compare_tensors, reference
from course_lib.checks.call_answer import kind_of, plain
from course_lib.checks.case_inputs import normal
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

_NAMES = ("experts", "weights", "counts")


def _cases(rng: random.Random) -> list[Case]:
    cases = []
    for tokens, number, k in ((4, 3, 2), (6, 8, 3), (5, 4, 1), (rng.randint(9, 20), 6, 2)):
        logits, weights = normal(rng, (tokens, number), (tokens, k))
        if number > 4:
            logits[:, -1] = -50  # nobody's choice
        label = f"{tokens} tokens, {number} experts, k = {k}"
        cases.append(Case(1, label, {"logits": logits, "k": k, "loss": weights}))
    return cases


def _on_rank(answer: Callable, case: Case) -> dict[str, Any]:
    logits = case.data["logits"].clone().requires_grad_()
    answered = answer(logits, case.data["k"])
    seen: dict[str, Any] = {"answered": plain(answered), "gradient": None}
    if not isinstance(answered, tuple | list) or len(answered) != 3:
        return seen
    weights = answered[1]
    if isinstance(weights, torch.Tensor) and weights.shape == case.data["loss"].shape:
        if weights.requires_grad:
            (weights * case.data["loss"]).sum().backward()
        seen["gradient"] = plain(logits.grad)
    return seen


def _judge(case: Case, observation: Observation) -> Finding | None:
    seen, k = observation.values[0], case.data["k"]
    answered = seen["answered"]
    if not isinstance(answered, tuple | list) or len(answered) != 3:
        kind = kind_of(answered)
        return Finding("three tensors are expected: experts, weights and counts", got=kind)
    logits = case.data["logits"].clone().requires_grad_()
    experts = torch.tensor([_best(row, k) for row in logits.tolist()])
    weights = _weights(logits, experts)
    (weights * case.data["loss"]).sum().backward()
    return (
        _wrong_experts(answered[0], experts, logits)
        or _wrong_weights(answered[1], weights.detach(), _looks(logits, experts))
        or _wrong_counts(answered[2], experts, logits.shape[1])
        or _wrong_gradient(seen["gradient"], logits, k)
    )


def _best(row: list[float], k: int) -> list[int]:
    """The places of the k largest, the largest first."""
    return sorted(range(len(row)), key=row.__getitem__, reverse=True)[:k]


def _weights(logits: torch.Tensor, experts: torch.Tensor) -> torch.Tensor:
    chosen = logits.softmax(-1).gather(1, experts)
    return chosen if experts.shape[1] == 1 else chosen / chosen.sum(1, keepdim=True)


def _wrong_experts(got: Any, experts: torch.Tensor, logits: torch.Tensor) -> Finding | None:
    looks = {
        "what a softmax along the tokens (dim 0) prefers: it goes along the experts of a token": (
            logits.softmax(0).topk(experts.shape[1], 1).indices
        ),
        "the experts with the smallest logits": (-logits).topk(experts.shape[1], 1).indices,
        "the right experts, from the last to the best": experts.flip(1),
        "the right experts in the order of their numbers, and the best one comes first": (
            experts.sort(1).values
        ),
    }
    return compare_tensors.titled(
        "experts", compare_tensors.mismatch(got, reference.moved(experts), 0, looks)
    )


def _wrong_weights(
    got: Any, weights: torch.Tensor, looks: dict[str, torch.Tensor]
) -> Finding | None:
    return compare_tensors.titled("weights", compare_tensors.computed(got, weights, 0, looks))


def _looks(logits: torch.Tensor, experts: torch.Tensor) -> dict[str, torch.Tensor]:
    with torch.no_grad():
        raw, every = logits.gather(1, experts), logits.softmax(-1).gather(1, experts)
        return {
            "the probabilities among all E experts: divide them by their sum over the k chosen": (
                every
            ),
            "1 for every token, and then no gradient reaches the router: with k = 1 give the "
            "probability itself": torch.ones_like(every) if every.shape[1] == 1 else every[:0],
            "the logits themselves: a weight is a probability": raw,
            "the logits divided by their sum, without a softmax": raw / raw.sum(1, keepdim=True),
            "a sigmoid of each logit, and a softmax is expected": (
                raw.sigmoid() / raw.sigmoid().sum(1, keepdim=True)
            ),
            "a softmax along the tokens (dim 0), and each token's own weights add up to 1": (
                logits.softmax(0).gather(1, experts)
            ),
        }


def _wrong_counts(got: Any, experts: torch.Tensor, number: int) -> Finding | None:
    counts = torch.bincount(experts.reshape(-1), minlength=number)
    if isinstance(got, torch.Tensor) and got.dim() == 1 and len(got) < number:
        return Finding(
            "counts has an entry for every expert, even for one that nobody chose",
            expected=f"{number} numbers",
            got=f"{len(got)}",
        )
    looks = {
        "the count of first choices only: all k choices of a token count": torch.bincount(
            experts[:, 0], minlength=number
        )
    }
    return compare_tensors.titled(
        "counts", compare_tensors.mismatch(got, reference.moved(counts), 0, looks)
    )


def _wrong_gradient(got: Any, logits: torch.Tensor, k: int) -> Finding | None:
    if got is None:
        return Finding(
            "the weights are right, but cut off from the logits: the router learns by their "
            "gradient only",
            got="no gradient",
        )
    finding = compare_tensors.computed(got, reference.gradient(logits), 0)
    title = "the weights are right, but not the gradient that they hand to the logits"
    return finding and Finding(title, expected=finding.expected, got=finding.got)


EXERCISE = Exercise(
    module=__name__,
    signature="(logits, k)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Three steps: probabilities, the k best of them in each row, and a count of how often every
        expert is among these. Which of the three must stay connected to the logits?
        """,
        """
        topk returns values and indices, the largest first. Dividing by the sum over dimension 1
        (keepdim=True) makes the weights of a token add up to 1; with k = 1 leave it out.
        torch.bincount counts whole numbers; its minlength is for experts that nobody chose.
        """,
        """
        weights, experts = logits.softmax(-1).topk(k); if k > 1 divide the weights by
        weights.sum(-1, keepdim=True); counts = torch.bincount(experts.flatten(),
        minlength=logits.shape[1]).
        """,
    ),
    passed="every token has its k experts, and every expert its count",
    contract=Contract(
        takes="logits (T, E) and k from 1 to E",
        gives="experts and counts are int64",
        allowed=frozenset(),
    ),
)
