"""Attention in one process, in float64, and verdicts on tensors that should be as exact.

q, k and v are (B, H, tokens, D). A rank has the tokens of `positions[rank]`, in that order.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from course_lib.checks import compare_tensors, reference, tolerance
from course_lib.checks.call_answer import kind_of
from course_lib.checks.case_inputs import normal
from course_lib.checks.exercise import Finding
from course_lib.checks.reference import Reference

_ROUNDING = {torch.float64: tolerance.LAYER, torch.float32: 1e-4}
BLIND = float("-inf")  # lse of a query that sees no key
_HIDDEN = re.compile(r"-1\.26765\d*e\+30")  # how -inf is printed once it is a number

Tensors = dict[str, torch.Tensor]
Pair = tuple[torch.Tensor, torch.Tensor]  # out and lse


def softmax_over(scores: torch.Tensor, v: torch.Tensor) -> Pair:
    """Softmax of scores, in which -inf hides a key, times v; a query that sees none gives 0."""
    lse = scores.logsumexp(-1)
    weights = (scores - lse.nan_to_num(neginf=0.0).unsqueeze(-1)).exp()
    return weights @ v, lse


def scores_of(
    q: torch.Tensor, k: torch.Tensor, visible: torch.Tensor, scale: float | None = None
) -> torch.Tensor:
    scores = q @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    return scores.masked_fill(~visible, BLIND)


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    visible: torch.Tensor,
    scale: float | None = None,
) -> Pair:
    """(out, lse) of queries over keys. visible: (queries, keys)."""
    return softmax_over(scores_of(q, k, visible, scale), v)


def causal(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Which keys each query sees, by their positions."""
    return queries[:, None] >= keys[None, :]


def merged(pairs: Sequence[Pair]) -> Pair:
    """Softmax over all keys, from those over parts of them."""
    outs, lses = (torch.stack(each) for each in zip(*pairs, strict=True))
    lse = lses.logsumexp(0)
    weights = (lses - lse.nan_to_num(neginf=0.0)).exp()
    return (outs * weights.unsqueeze(-1)).sum(0), lse


# ---------------------------------------------------------------------------------------------


def plain(tokens: int, ranks: int) -> list[torch.Tensor]:
    return list(torch.arange(tokens).chunk(ranks))


def zigzag(tokens: int, ranks: int) -> list[torch.Tensor]:
    chunks = torch.arange(tokens).chunk(2 * ranks)
    return [torch.cat([chunks[r], chunks[2 * ranks - 1 - r]]) for r in range(ranks)]


def striped(tokens: int, ranks: int) -> list[torch.Tensor]:
    return [torch.arange(tokens)[rank::ranks] for rank in range(ranks)]


def shuffled(rng: random.Random, tokens: int, ranks: int) -> list[torch.Tensor]:
    """Any tokens on any rank, in ascending order on each."""
    order = list(range(tokens))
    rng.shuffle(order)
    size = tokens // ranks
    return [torch.tensor(sorted(order[r * size : (r + 1) * size])) for r in range(ranks)]


def sequence(
    rng: random.Random, positions: Sequence[torch.Tensor], batch: int = 1, heads: int = 2
) -> Tensors:
    """q, k, v and the gradient of the output, of all tokens; D is half of a rank's tokens."""
    tokens = sum(map(len, positions))
    shape = (batch, heads, tokens, max(2, len(positions[0]) // 2))
    return dict(zip(("q", "k", "v", "grad_out"), normal(rng, *[shape] * 4), strict=True))


def part(tensor: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """A rank's tokens, contiguous."""
    return tensor.index_select(2, positions)


# ---------------------------------------------------------------------------------------------


def tensors(value: Any, names: Sequence[str], rank: int | None = None) -> Tensors | Finding:
    """What an answer returned, by name; or why it is not so many tensors."""
    expected = f"{len(names)} tensors, ({', '.join(names)})"
    if not isinstance(value, tuple | list):
        likely = f"{expected} are expected, and this is {kind_of(value)}"
        if value is None:
            likely = "your function returned nothing: is a `return` missing at the end?"
        return Finding(likely, rank, expected=expected, got=kind_of(value))
    if len(value) != len(names):
        return Finding(
            f"{expected} are expected, and these are {len(value)}", rank, expected, str(len(value))
        )
    return dict(zip(names, value, strict=True))


def differs(
    name: str,
    got: Any,
    wanted: torch.Tensor,
    dtype: torch.dtype,
    rank: int,
    looks: Callable[[], Mapping[str, torch.Tensor]] = dict,
    blind: torch.Tensor | None = None,
) -> Finding | None:
    """One tensor against the exact one. looks: makes what it may be instead, by name.

    blind: (T,), the queries that see nothing in some block that comes by.
    """
    if isinstance(got, torch.Tensor) and bool(got.isnan().any()) and got.shape == wanted.shape:
        return _not_a_number(name, got, wanted, rank, blind)
    exact = reference.computed(wanted, _ROUNDING[dtype], dtype=dtype)
    finding = compare_tensors.mismatch(_shown(got), replace(exact, value=_shown(wanted)), rank)
    if finding is None:
        return None
    fits = [why for why, other in looks().items() if _is(got, other, dtype)]
    why = f"this is {'; or '.join(fits)}" if fits else finding.likely
    if not fits and _blind_alone(name, got, wanted, exact):
        why = (
            "right but for the queries that see no key: their output is 0 and their lse -inf. A "
            "hidden score is float('-inf'): with a large negative number instead, a query that "
            "sees no key sees all of them alike"
        )
    expected, had = (_HIDDEN.sub("-inf", told) for told in (finding.expected, finding.got))
    return replace(finding, likely=f"{name}: {why}", expected=expected, got=had)


def _blind_alone(name: str, got: Any, wanted: torch.Tensor, exact: Reference) -> bool:
    """Whether only those queries are wrong that see no key."""
    if not isinstance(got, torch.Tensor) or (got.shape, got.dtype) != (wanted.shape, exact.dtype):
        return False
    blind = wanted == BLIND if name == "lse" else (wanted == 0).all(-1, keepdim=True)
    return bool(blind.any()) and bool((((got - wanted).abs() <= exact.tolerance) | blind).all())


def _not_a_number(
    name: str,
    got: torch.Tensor,
    wanted: torch.Tensor,
    rank: int,
    blind_in_a_block: torch.Tensor | None,
) -> Finding:
    """nan, which comes from a query that sees nothing, or from exp of too much."""
    if blind_in_a_block is not None:
        queries = got.isnan() if name == "lse" else got.isnan().any(-1)
        if not bool((queries & ~blind_in_a_block).any()):
            return Finding(
                f"{name} is not a number just where a query sees nothing in one of the blocks that "
                "come by. There all scores are -inf, and -inf minus -inf is nan: what such a block "
                "gives is out 0 and lse -inf",
                rank,
            )
    blind = wanted == BLIND if name == "lse" else (wanted == 0).all(-1, keepdim=True)
    why = (
        "exp of a large score is inf, and inf / inf is nan: subtract the largest score first"
        if bool((got.isnan() & ~blind).any())
        else "a query that sees no key has only scores of -inf, and -inf minus -inf is nan. Its "
        "output is 0 and its lse -inf"
    )
    return Finding(f"{name} is not a number somewhere: {why}", rank)


def _shown(value: Any) -> Any:
    """-inf as a number that can be compared, exact in every dtype."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.masked_fill(value == BLIND, -(2.0**100))
    return value


def _is(got: Any, other: torch.Tensor, dtype: torch.dtype) -> bool:
    if not isinstance(got, torch.Tensor) or got.shape != other.shape:
        return False
    slack = tolerance.share_of_largest(other, _ROUNDING[dtype])
    return bool(((_shown(got) - _shown(other)).abs() <= slack).all())
