"""Attention over some of the keys, with what it takes to put it together with the others.

partial_attention(q, k, v, visible) -> (out, lse)
    q (B, H, T, D), k and v (B, H, K, D); visible (T, K), True where a query may see a key.
    out (B, H, T, D) is softmax(q k^T / sqrt(D)) v over the visible keys, lse (B, H, T) the log of
    the sum of the exponentials of their scores. A query that sees none: out 0, lse -inf.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from course_lib.checks.call_answer import plain
from course_lib.checks.case_inputs import normal
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation

from ._attention import Tensors, attend, differs, scores_of, tensors

_NAMES = ("out", "lse")


def _cases(rng: random.Random) -> list[Case]:
    all_of_them = torch.ones(2, 3, dtype=torch.bool)
    some = torch.tensor([[1, 0, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]]).bool()
    many = torch.rand(7, 5, generator=torch.Generator().manual_seed(rng.getrandbits(32))) < 0.5
    return [
        _case("2 queries and 3 keys, all visible", rng, (1, 1), 2, all_of_them),
        _case("a query that sees no key", rng, (1, 2), 2, some),
        _case("scores in the thousands", rng, (1, 1), 4, all_of_them, factor=60),
        _case("all scores far below zero", rng, (1, 1), 4, all_of_them, factor=60, below=True),
        _case("float32, a mask drawn by chance", rng, (2, 3), 6, many, dtype=torch.float32),
    ]


def _case(
    label: str,
    rng: random.Random,
    batch_and_heads: tuple[int, int],
    size: int,
    visible: torch.Tensor,
    factor: float = 1,
    below: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Case:
    queries, keys = visible.shape
    shapes = [(*batch_and_heads, tokens, size) for tokens in (queries, keys, keys)]
    q, k, v = normal(rng, *shapes, dtype=dtype)
    q, k = q * factor, k * factor
    if below:
        q, k = q.abs() + factor, -k.abs() - factor
    return Case(1, label, {"q": q, "k": k, "v": v, "visible": visible})


def _on_rank(answer: Callable, case: Case) -> Any:
    return plain(answer(*(case.data[name].clone() for name in ("q", "k", "v", "visible"))))


def _judge(case: Case, observation: Observation) -> Finding | None:
    got = tensors(observation.values[0], _NAMES)
    if isinstance(got, Finding):
        return got
    q, k, v = (case.data[name].double() for name in ("q", "k", "v"))
    visible = case.data["visible"]
    out, lse = attend(q, k, v, visible)
    looks = partial(_mistakes, q, k, v, visible)
    dtype = case.data["q"].dtype
    return differs("out", got["out"], out, dtype, 0, looks) or differs(
        "lse", got["lse"], lse, dtype, 0, partial(_lse_mistakes, q, k, visible)
    )


def _mistakes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, visible: torch.Tensor) -> Tensors:
    size = q.shape[-1]
    scores = scores_of(q, k, visible)
    weights = scores.exp()
    overflows = weights.isinf().any() or ((weights == 0).all(-1) & visible.any(-1)).any()
    return {
        "what is left where exp of the scores is inf, or 0 for all keys: subtract the largest "
        "score first": torch.zeros_like(q @ k.mT @ v) if overflows else v[:0],
        "what comes out without the division of the scores by the root of D": (
            attend(q, k, v, visible, scale=1.0)[0]
        ),
        "what comes out with scores divided by D, and not by its root": (
            attend(q, k, v, visible, scale=1 / size)[0]
        ),
        "attention to all keys: some are not visible": (
            attend(q, k, v, torch.ones_like(visible))[0]
        ),
        "attention to the keys that are not visible: the mask is the wrong way round": (
            attend(q, k, v, ~visible)[0]
        ),
        "the sum of exp(score) v, which is still to be divided by the sum of exp(score)": weights
        @ v,
        "what comes out with hidden scores set to 0: exp(0) is 1. Set them to -inf": (
            (scores_of(q, k, torch.ones_like(visible)) * visible).softmax(-1) @ v
        ),
    }


def _lse_mistakes(q: torch.Tensor, k: torch.Tensor, visible: torch.Tensor) -> Tensors:
    scores = scores_of(q, k, visible)
    lse, largest = scores.logsumexp(-1), scores.amax(-1)
    return {
        "the sum of the exponentials, without its logarithm": lse.exp(),
        "the largest score of each query": largest,
        "what comes out if the largest score, which was subtracted before exp, is not "
        "added again": (lse - largest),
        "the logarithm to the base 2: the natural one is expected": lse
        / torch.log(lse.new_tensor(2)),
        "over all keys: some are not visible": scores_of(q, k, torch.ones_like(visible)).logsumexp(
            -1
        ),
        "summed over the queries: one number for each query": scores.logsumexp(-2)
        if scores.shape[-1] == scores.shape[-2]
        else lse.new_zeros(0),
    }


EXERCISE = Exercise(
    module=__name__,
    signature="(q, k, v, visible)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        Hidden keys get the score -inf, since exp(-inf) is 0: masked_fill(~visible, -inf). logsumexp
        gives lse without overflow. What is the softmax of a row in which everything is hidden?
        """,
        """
        scores.softmax(-1) does the rest, but for a query that sees nothing: a softmax over only
        -inf is nan. nan_to_num() makes 0 of it. logsumexp gives -inf there by itself.
        """,
        """
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~visible, float("-inf")); return
        scores.softmax(-1).nan_to_num() @ v, scores.logsumexp(-1).
        """,
    ),
    passed="softmax over the visible keys, and the logarithm of its denominator",
    contract=Contract(
        takes="q (B, H, T, D), k and v (B, H, K, D), visible (T, K); scores of any size",
        gives="the results have q's dtype",
        dtypes=("float32", "float64"),
        allowed=frozenset(),
    ),
)
