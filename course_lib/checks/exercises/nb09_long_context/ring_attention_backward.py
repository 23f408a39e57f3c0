"""The backward of ring attention, in which gradients of keys and values travel with them.

ring_attention_backward(q, k, v, positions, out, lse, grad_out) -> (grad_q, grad_k, grad_v)
    As `ring_attention`, whose results out and lse are; grad_out is the gradient of out. Each rank
    gets the gradients of its own q, k and v, summed over the queries of all ranks.
"""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks.call_answer import plain
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.exercises._operations import Operations

from ._attention import Pair, Tensors, attend, causal, differs, part, tensors
from ._attention import plain as plain_split
from ._ring import (
    NO_LARGE,
    cases_of_splits,
    copies,
    own,
    own_tokens,
    round_trip,
    split_case,
    too_large,
)

_NAMES = ("grad_q", "grad_k", "grad_v")
_TRAVEL = ("k", "v", "grad_k", "grad_v")
_LARGE = 40  # times as large, queries and keys: exp of a hidden score is inf
_OF_A_RANK = ("q", "k", "v", "grad_out", "out", "lse")


def _whole(case: Case) -> Pair:
    """(out, lse) of all tokens."""
    tokens = torch.arange(case.data["q"].shape[2])
    q, k, v = (case.data[name] for name in ("q", "k", "v"))
    return attend(q, k, v, causal(tokens, tokens))


def _cases(rng: random.Random) -> list[Case]:
    large = split_case(rng, "scores in the thousands", plain_split(9, 3))
    large.data.update({name: large.data[name] * _LARGE for name in ("q", "k")})
    return [_with_results(case) for case in (*cases_of_splits(rng), large)]


def _with_results(case: Case) -> Case:
    """What forward has left: a rank is given its part, and could not compute it alone."""
    out, lse = _whole(case)
    return replace(case, data={**case.data, "out": out, "lse": lse})


def _on_rank(answer: Callable, case: Case) -> Any:
    rank = dist.get_rank()
    positions = case.data["positions"]
    q, k, v, grad_out, out, lse = own(case, rank, *_OF_A_RANK)
    with Operations() as made:
        returned = answer(q, k, v, copies(positions), out, lse, grad_out)
    return {"returned": plain(returned), "largest": made.largest}


def _judge(case: Case, observation: Observation) -> Finding | None:
    n, positions = case.world_size, case.data["positions"]
    exact = _gradients(case)
    for rank, seen in enumerate(observation.values):
        got = tensors(seen["returned"], _NAMES, rank)
        if isinstance(got, Finding):
            return got
        for name in _NAMES:
            wanted = part(exact[name], positions[rank])
            if found := _not_a_number(name, got[name], rank):
                return found
            looks = partial(_mistakes, case, rank, name, exact)
            if finding := differs(name, got[name], wanted, torch.float64, rank, looks):
                return finding
    block = 2 * case.data["k"].nbytes // n
    rule = (
        "n - 1 blocks of keys and values, and as many of their gradients, or one more if a rank "
        "sends its own part round with them"
    )
    least, most = (2 * (n - 1) * block, (2 * n - 1) * block) if n > 1 else (0, 0)
    return round_trip(case, observation, least, most, rule) or too_large(
        case, observation, together=len(_TRAVEL)
    )


def _not_a_number(name: str, got: Any, rank: int) -> Finding | None:
    if not isinstance(got, torch.Tensor) or not bool(got.isnan().any()):
        return None
    return Finding(
        f"{name} is not a number somewhere: exp of a large score is inf, and inf times 0 is nan. "
        "Subtract lse before exp, and hide scores with -inf before it, not with 0 after it",
        rank,
    )


def _by_blocks(
    case: Case,
    scale: float | None = None,
    delta: bool = True,
    by_block: bool = False,
    scores_scale: float | None = None,
    itself: bool = True,
    turned: bool = False,
) -> tuple[dict[tuple[int, int], Tensors], Tensors]:
    """Gradients from each pair (queries of rank a, keys of rank b), and their sums, whole.

    The others are how people err: gradients of scores, or scores, not scaled, without the row sums
    of grad_out * out, each block with the softmax over itself alone, no token seeing itself, and
    blocks with the masks of the ranks on the other side.
    """
    data, n, positions = case.data, case.world_size, case.data["positions"]
    out, lse = _whole(case)
    factor = data["q"].shape[-1] ** -0.5
    parts: dict[tuple[int, int], Tensors] = {}
    sums = {name: torch.zeros_like(data["q"]) for name in _NAMES}
    for a in range(n):
        q, grad_out = own(case, a, "q", "grad_out")
        out_a, lse_a = part(out, positions[a]), part(lse, positions[a])
        row = (grad_out * out_a).sum(-1, keepdim=True) if delta else 0.0
        for b in range(n):
            k, v = own(case, b, "k", "v")
            masked_by = (2 * a - b) % n if turned else b
            seen = causal(positions[a] - int(not itself), positions[masked_by])
            products = q @ k.mT * (factor if scores_scale is None else scores_scale)
            scores = products.masked_fill(~seen, float("-inf"))
            own_lse = scores.logsumexp(-1).nan_to_num(neginf=0.0)
            weights = (scores - (own_lse if by_block else lse_a).unsqueeze(-1)).exp()
            grad_scores = weights * (grad_out @ v.mT - row) * (factor if scale is None else scale)
            parts[a, b] = {
                "grad_q": grad_scores @ k,
                "grad_k": grad_scores.mT @ q,
                "grad_v": weights.mT @ grad_out,
            }
            for name, at in (("grad_q", a), ("grad_k", b), ("grad_v", b)):
                sums[name].index_add_(2, positions[at], parts[a, b][name])
    return parts, sums


def _gradients(case: Case) -> Tensors:
    """Those of autograd in one process, of all tokens."""
    leaves = {name: case.data[name].clone().requires_grad_() for name in ("q", "k", "v")}
    tokens = torch.arange(leaves["q"].shape[2])
    out, _ = attend(leaves["q"], leaves["k"], leaves["v"], causal(tokens, tokens))
    found = torch.autograd.grad(out, list(leaves.values()), case.data["grad_out"])
    return dict(zip(_NAMES, found, strict=True))


def _mistakes(
    case: Case,
    rank: int,
    name: str,
    exact: Tensors,
) -> Tensors:
    n, positions = case.world_size, case.data["positions"]
    parts_of, _ = _by_blocks(case)

    def whole(**changed: Any) -> torch.Tensor:
        return part(_by_blocks(case, **changed)[1][name], positions[rank])

    looks = {
        "what comes out if the gradient of the scores lacks the factor 1/sqrt(D)": whole(scale=1.0),
        "what comes out without the row sums of grad_out * out: the softmax's own gradient": (
            whole(delta=False)
        ),
    }
    looks |= {
        "what comes out without the division of the scores by the root of D": (
            whole(scores_scale=1.0)
        ),
        "what comes out if a token does not see itself: >=, not >": whole(itself=False),
    }
    if n == 1:
        return looks
    looks |= {
        "the mask of another rank's block: after s steps a rank has the block of rank - s, not "
        "rank + s": whole(turned=True),
        "what comes out if each block has a softmax of its own: take lse as given, of all keys": (
            whole(by_block=True)
        ),
        "only this rank's own part: the others' are missing": parts_of[rank, rank][name],
    }
    if name != "grad_q":
        for step in range(1, n):
            other = (rank + step) % n
            looks[
                f"the gradient of rank {other}'s tokens: it has not come home. It takes as many "
                "steps as there are ranks"
            ] = part(exact[name], positions[other])
        looks["without this rank's own part"] = (
            part(exact[name], positions[rank]) - parts_of[rank, rank][name]
        )
    return looks


EXERCISE = Exercise(
    module=__name__,
    signature="(q, k, v, positions, out, lse, grad_out)",
    cases=_cases,
    on_rank=_on_rank,
    own=dict.fromkeys(_OF_A_RANK, own_tokens),
    judge=_judge,
    hints=(
        """
        Keys and values go round as before, and at each rank you know which gradient its queries
        give to them. Where does that gradient have to end, and how could it get there?
        """,
        """
        grad_k and grad_v of a block travel with it, and each rank adds its own part before it hands
        them on. After n - 1 steps a block is at the rank before its owner: one more step takes the
        gradients (and only them) home. The softmax of a block is exp(scores - lse), with lse over
        all keys.
        """,
        """
        delta = (grad_out * out).sum(-1, keepdim=True). For each block: p = exp(scores - lse);
        grad_v += p^T grad_out; ds = p * (grad_out v^T - delta) / sqrt(D); grad_q += ds k; grad_k +=
        ds^T q. Between two blocks: k, v, grad_k, grad_v = pass_on([...]). At the end grad_k, grad_v
        = pass_on([grad_k, grad_v]).
        """,
    ),
    passed="gradients of keys and values have been at every rank, and are home",
    contract=Contract(
        takes="as for ring_attention; out and lse are its exact results",
        allowed=POINT_TO_POINT,
        sends="each rank sends n - 1 blocks of keys and values, and n - 1 or n of their gradients, "
        "to the next rank",
        holds=f"{NO_LARGE} than four blocks of keys)",
    ),
    points=3,
)
