"""Attention, split by heads.

parallel_attention(x, query, key, value, out, heads) -> the whole output, (B, T, C)
    x (B, T, C) is whole on every rank; query, key and value (C/t, C) are this rank's columns, out
    (C, C/t) its rows, without biases. `heads` counts those of all ranks; the attention is causal.
    One all-reduce forward and one backward. ValueError, before anything is sent, where the ranks
    do not divide the heads.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks.case_inputs import normal
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.exercises._refusals import heads_refused
from course_lib.checks.rank_inputs import along
from course_lib.checks.reference import added, gradient
from course_lib.text import counted

from ._support import (
    ALL_REDUCE,
    Exact,
    Tensors,
    layer_pass,
    one_each_way,
    parts,
    wrong_values,
)

_NAMES = ("x", "query", "key", "value", "out")


def _cases(rng: random.Random) -> list[Case]:
    sizes = [(2, 4, 1, 3, 8), (3, 3, 2, 2, 6), (4, 8, 1, rng.randint(4, 6), 8), (1, 2, 1, 1, 4)]
    sizes.append((2, 4, rng.randint(1, 3), rng.randint(7, 20), 12))
    cases = [_case(rng, *size) for size in sizes]
    for ranks, heads in ((2, 3), (4, 2)):
        cases.append(_case(rng, ranks, heads, 1, 2, 12))
    return cases


def _case(rng: random.Random, ranks: int, heads: int, batch: int, tokens: int, hidden: int) -> Case:
    shape = (batch, tokens, hidden)
    tensors = normal(rng, shape, *[(hidden, hidden)] * 4, shape)
    label = f"{heads} heads over {counted(ranks, 'rank')}"
    data = dict(zip((*_NAMES, "weights"), tensors, strict=True))
    return Case(ranks, label, {**data, "heads": heads})


def _parts(case: Case, rank: int) -> Tensors:
    data, t = case.data, case.world_size
    columns = {name: parts(data[name], t, 0)[rank] for name in ("query", "key", "value")}
    return {"x": data["x"], **columns, "out": parts(data["out"], t, 1)[rank]}


def _on_rank(answer: Callable, case: Case) -> Any:
    heads = case.data["heads"]
    try:
        return layer_pass(
            lambda leaf: answer(*(leaf[name] for name in _NAMES), heads),
            _parts(case, dist.get_rank()),
            case.data["weights"],
            residual="x",
        )
    except ValueError as error:
        if heads % case.world_size == 0:
            raise
        return {"refused": str(error)}


def _attend(
    p: Tensors,
    heads: int,
    *,
    causal: bool = True,
    scale: float = 0.0,
    names: tuple[str, str, str] = ("query", "key", "value"),
    cut: Callable[[torch.Tensor, int], torch.Tensor] = lambda y, heads: y.unflatten(
        -1, (heads, -1)
    ).transpose(1, 2),
    joined: Callable[[torch.Tensor], torch.Tensor] = lambda y: y.transpose(1, 2).flatten(-2),
) -> torch.Tensor:
    """The summand of the rank whose parts these are. All but the first two is how people err."""
    q, k, v = (cut(p["x"] @ p[name].T, heads) for name in names)
    scores = q @ k.mT * (scale or q.shape[-1] ** -0.5)
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return joined(scores.softmax(-1) @ v) @ p["out"].T


def _mistakes(ranks: list[Tensors], heads: int, x: torch.Tensor) -> Tensors:
    """What known mistakes give on this very input; `heads` are those of a rank."""
    shape = x.shape

    def total(**changed: Any) -> torch.Tensor:
        return added(_attend(p, heads, **changed) for p in ranks)

    return {
        "what all tokens together give: make it causal, so that none sees a later one": (
            total(causal=False)
        ),
        "what comes out without the division of the scores by the root of a head's size": (
            total(scale=1.0)
        ),
        "what comes out with scores divided by the root of C, where a head's size is meant": (
            total(scale=shape[-1] ** -0.5)
        ),
        "what comes out with query and key swapped": total(names=("key", "query", "value")),
        "made of heads whose columns lie apart: a head's columns lie side by side, so unflatten "
        "into (heads, size), not (size, heads)": total(
            cut=lambda y, heads: y.unflatten(-1, (-1, heads)).movedim(-1, 1)
        ),
        "what comes out if the heads are not transposed back before they are joined": total(
            joined=lambda y: y.reshape(*shape[:2], -1)
        ),
        "attention between heads: transpose (B, T, H, D) to (B, H, T, D) first": total(
            cut=lambda y, heads: y.unflatten(-1, (heads, -1)),
            joined=lambda y: y.flatten(-2),
        ),
        "what comes out if view(B, H/t, T, -1) stands for the transpose: it cuts through tokens": (
            total(
                cut=lambda y, heads: y.reshape(len(y), heads, y.shape[1], -1),
                joined=lambda y: y.reshape(*shape[:2], -1),
            )
        ),
        "x + attention(x), and only the attention is expected: the residual sum is the caller's": (
            total() + x
        ),
    }


def _exact(case: Case) -> Exact:
    t, weights, heads = case.world_size, case.data["weights"], case.data["heads"]
    ranks = [{n: p.clone().requires_grad_() for n, p in _parts(case, r).items()} for r in range(t)]
    summands = [_attend(p, heads // t) for p in ranks]
    output = added(summands)
    (output * weights).sum().backward()
    from_ranks = [gradient(p["x"]) for p in ranks]
    gradients = [
        {name: gradient(p[name]) for name in _NAMES[1:]} | {"x": weights + added(from_ranks)}
        for p in ranks
    ]
    with torch.no_grad():
        looks = _mistakes(ranks, heads // t, case.data["x"])
        if (case.data["x"].shape[-1] // t) % heads == 0 and t > 1:
            looks[
                f"that of {heads} heads on every rank: of {heads}, each rank has {heads // t}"
            ] = added(_attend(p, heads) for p in ranks)
    if t == 1:
        return Exact([output.detach()], gradients, [looks])
    alone = "the part that came through this rank's own heads: f is missing"
    return Exact(
        [output.detach()] * t,
        gradients,
        [
            {
                "this rank's own summand: g is missing": own.detach(),
                "what comes out with f and g swapped: g(x) is t times x, and f adds nothing "
                "up forward": _attend({**p, "x": t * p["x"]}, heads // t).detach(),
                **looks,
            }
            for p, own in zip(ranks, summands, strict=True)
        ],
        [{"x": {alone: weights + own}} for own in from_ranks],
    )


def _judge(case: Case, observation: Observation) -> Finding | None:
    heads, t = case.data["heads"], case.world_size
    if heads % t == 0:
        return wrong_values(case, observation, _exact(case)) or one_each_way(
            observation, t, case.data["x"].nbytes
        )
    return heads_refused(case, observation, heads)


EXERCISE = Exercise(
    module=__name__,
    signature="(x, query, key, value, out, heads)",
    cases=_cases,
    on_rank=_on_rank,
    own={"query": along(0), "key": along(0), "value": along(0), "out": along(1)},
    judge=_judge,
    hints=(
        """
        It is the attention of one process with fewer heads, between f and g. How many heads are
        this rank's? How large is one?
        """,
        """
        (f(x) @ query.T) is (B, T, C/t): unflatten(-1, (heads // t, -1)) and transpose(1, 2) make it
        (B, H/t, T, D) for scaled_dot_product_attention. One f for the three of them: x goes into
        the rank's work once. Before all that, compare heads with t.
        """,
        """
        if heads % t: raise ValueError(f"{heads} heads over {t} ranks"). x = megatron_f(x); q, k, v
        as (B, heads // t, T, D); y = F.scaled_dot_product_attention(q, k, v, is_causal=True);
        return megatron_g(y.transpose(1, 2).flatten(-2) @ out.T).
        """,
    ),
    passed="each rank attends with its own heads, one all-reduce each way",
    contract=Contract(
        takes="x of any sizes B and T, whole on every rank, and this rank's parts of the weights",
        allowed=ALL_REDUCE,
        sends="there is one of x's size forward and one backward, and none where t does not "
        "divide the heads",
    ),
    points=2,
)
