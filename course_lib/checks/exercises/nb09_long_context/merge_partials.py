"""Two softmaxes over different keys become the one over all of them.

merge_partials(out_a, lse_a, out_b, lse_b) -> (out, lse)
    out (B, H, T, D) and lse (B, H, T) of the same queries over keys A and over keys B. A query may
    have seen nothing on either side (out 0, lse -inf).
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

from ._attention import BLIND, Tensors, differs, merged, tensors

_GIVEN = ("out_a", "lse_a", "out_b", "lse_b")


def _cases(rng: random.Random) -> list[Case]:
    return [
        _case("2 queries", rng, (1, 1, 2)),
        _case("scores in the thousands", rng, (1, 2, 3), at=2000),
        _case("all scores far below zero", rng, (1, 2, 3), at=-2000),
        _case("some queries saw nothing in A, some in B, one in both", rng, (1, 1, 5), blind=True),
        _case("float32", rng, (2, 2, rng.randint(3, 9)), dtype=torch.float32),
    ]


def _case(
    label: str,
    rng: random.Random,
    shape: tuple[int, ...],
    at: float = 0,
    blind: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Case:
    size = rng.randint(2, 5)
    out_a, out_b, lse_a, lse_b = normal(
        rng, (*shape, size), (*shape, size), shape, shape, dtype=dtype
    )
    lse_a, lse_b = lse_a + at, lse_b + at
    if blind:
        for out, lse, unseeing in ((out_a, lse_a, [0, 2]), (out_b, lse_b, [1, 2])):
            out[..., unseeing, :], lse[..., unseeing] = 0.0, BLIND
    return Case(1, label, dict(zip(_GIVEN, (out_a, lse_a, out_b, lse_b), strict=True)))


def _on_rank(answer: Callable, case: Case) -> Any:
    return plain(answer(*(case.data[name].clone() for name in _GIVEN)))


def _judge(case: Case, observation: Observation) -> Finding | None:
    got = tensors(observation.values[0], ("out", "lse"))
    if isinstance(got, Finding):
        return got
    out_a, lse_a, out_b, lse_b = (case.data[name].double() for name in _GIVEN)
    out, lse = merged([(out_a, lse_a), (out_b, lse_b)])
    dtype = case.data["out_a"].dtype
    one_sided = lse_a.isinf() != lse_b.isinf()
    if bool(one_sided.any()):
        for name, each in got.items():
            if found := _not_finite(name, each, one_sided):
                return found
    looks = partial(_mistakes, out_a, lse_a, out_b, lse_b)
    lse_looks = partial(_lse_mistakes, lse_a, lse_b)
    return differs("out", got["out"], out, dtype, 0, looks) or differs(
        "lse", got["lse"], lse, dtype, 0, lse_looks
    )


def _not_finite(name: str, got: Any, one_sided: torch.Tensor) -> Finding | None:
    """nan and inf where one of the two has seen no key."""
    if not isinstance(got, torch.Tensor) or got.shape[:3] != one_sided.shape:
        return None
    bad = got.isnan() | (got == float("inf"))
    bad = bad if name == "lse" else bad.any(-1)
    if not bool(bad.any()) or bool((bad & ~one_sided).any()):
        return None
    return Finding(
        f"{name} is not finite just where one of the two saw no key: its lse is -inf, so a "
        "difference of the two is inf, and inf - inf is nan",
        0,
    )


def _lse_mistakes(lse_a: torch.Tensor, lse_b: torch.Tensor) -> Tensors:
    return {
        "the sum of the two: the logarithm of a product": lse_a + lse_b,
        "the larger of the two": torch.maximum(lse_a, lse_b),
        "the sum of the exponentials, without its logarithm": lse_a.exp() + lse_b.exp(),
        "their mean": (lse_a + lse_b) / 2,
    }


def _mistakes(
    out_a: torch.Tensor, lse_a: torch.Tensor, out_b: torch.Tensor, lse_b: torch.Tensor
) -> Tensors:
    share = torch.sigmoid(lse_a - lse_b).unsqueeze(-1)
    sums = lse_a.exp() + lse_b.exp()
    overflows = sums.isinf().all() or (sums == 0).all()
    a, b = lse_a.unsqueeze(-1), lse_b.unsqueeze(-1)
    return {
        "what is left where both exp(lse) are inf, or 0: subtract the larger lse first": (
            torch.zeros_like(out_a) if overflows else out_a[:0]
        ),
        "the mean of the two: the one with more weight in its exponentials counts more": (
            (out_a + out_b) / 2
        ),
        "their sum: each has been divided by its own sum of exponentials, not by that of all": (
            out_a + out_b
        ),
        "A with B's weight and B with A's": out_a * (1 - share) + out_b * share,
        "exp(lse) times out, added up: still to be divided by the sum of both exp(lse)": (
            out_a * a.exp() + out_b * b.exp()
        ),
        "weighted by lse itself: lse is a logarithm, so its exp is the weight": (
            (out_a * a + out_b * b) / (a + b)
        ),
    }


EXERCISE = Exercise(
    module=__name__,
    signature="(out_a, lse_a, out_b, lse_b)",
    cases=_cases,
    on_rank=_on_rank,
    judge=_judge,
    hints=(
        """
        exp(lse_a) is the denominator of softmax A. What is the denominator of the whole? Which part
        of it is A's?
        """,
        """
        The whole denominator is exp(lse_a) + exp(lse_b), so lse is the log of that sum, and A's
        share is exp(lse_a - lse). That is a softmax over the two lse: stack them. Where both are
        -inf it is nan, and both outs are 0.
        """,
        """
        both = torch.stack([lse_a, lse_b]); share_a, share_b =
        both.softmax(0).nan_to_num().unsqueeze(-1); return out_a * share_a + out_b * share_b,
        both.logsumexp(0).
        """,
    ),
    passed="the softmax over all keys, from two that never saw each other's",
    contract=Contract(
        takes="two outs (B, H, T, D) and two lse (B, H, T) of any size, -inf among them",
        dtypes=("float32", "float64"),
        allowed=frozenset(),
    ),
)
