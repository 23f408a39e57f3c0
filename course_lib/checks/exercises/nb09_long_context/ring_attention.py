"""Attention in which keys and values go round a ring.

ring_attention(q, k, v, positions) -> (out, lse)
    q, k, v (B, H, T, D): this rank's tokens, all heads. positions[r] (T): the positions of rank r's
    tokens in the sequence. Causal. out (B, H, T, D) and lse (B, H, T), of this rank's queries over
    the keys of all ranks (Liu et al., "Ring Attention with Blockwise Transformers", 2023).
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks.call_answer import plain
from course_lib.checks.contract import POINT_TO_POINT, Contract
from course_lib.checks.exercise import Case, Exercise, Finding, Observation
from course_lib.checks.exercises._operations import Operations

from ._attention import Tensors, differs, striped, tensors
from ._ring import (
    NONE_KEPT,
    Visible,
    blind_somewhere,
    cases_of_splits,
    copies,
    forward_mistakes,
    in_order,
    kept,
    over,
    over_all,
    own,
    own_tokens,
    round_trip,
    split_case,
    too_large,
)

_LARGE = 40  # times as large, queries and keys: scores in the thousands


def _cases(rng: random.Random) -> list[Case]:
    large = split_case(rng, "scores in the thousands", striped(9, 3))
    large.data.update({name: large.data[name] * _LARGE for name in ("q", "k")})
    return [*cases_of_splits(rng), large]


def _on_rank(answer: Callable, case: Case) -> Any:
    q, k, v = own(case, dist.get_rank(), "q", "k", "v")
    with Operations() as made:
        returned = answer(q, k, v, copies(case.data["positions"]))
    return {"returned": plain(returned), "largest": made.largest, "arrived": made.arrived}


def _judge(case: Case, observation: Observation) -> Finding | None:
    n, visible = case.world_size, in_order(case)
    for rank, seen in enumerate(observation.values):
        got = tensors(seen["returned"], ("out", "lse"), rank)
        if isinstance(got, Finding):
            return got
        out, lse = over_all(case, rank, visible)
        looks = partial(forward_mistakes, case, rank, visible)
        lse_looks = partial(_lse_mistakes, case, rank, visible)
        blind = blind_somewhere(case, rank, visible)
        finding = differs("out", got["out"], out, torch.float64, rank, looks, blind) or differs(
            "lse", got["lse"], lse, torch.float64, rank, lse_looks, blind
        )
        if finding:
            return finding
    block = 2 * case.data["k"].nbytes // n
    nbytes = (n - 1) * block
    rule = f"a rank hands on n - 1 = {n - 1} blocks of keys and values"
    return (
        round_trip(case, observation, nbytes, nbytes, rule)
        or too_large(case, observation)
        or kept(case, observation)
    )


def _lse_mistakes(case: Case, rank: int, visible: Visible) -> Tensors:
    return {"that of this rank's own keys": over(case, rank, rank, visible(rank, rank))[1]}


EXERCISE = Exercise(
    module=__name__,
    signature="(q, k, v, positions)",
    cases=_cases,
    on_rank=_on_rank,
    own=dict.fromkeys(("q", "k", "v", "grad_out"), own_tokens),
    judge=_judge,
    hints=(
        """
        Begin with your own block: partial_attention of q with your k and v. Then n - 1 times: hand
        on the block that you hold, take the one that comes, and merge its part into what you have.
        Whose block is it, after s steps?
        """,
        """
        After s steps rank r holds the block of rank (r - s) % n. A query sees a key if its position
        is not smaller: positions[r][:, None] >= positions[owner][None, :]. The last block is not
        handed on.
        """,
        """
        out, lse = partial_attention(q, k, v, own mask); for step in range(1, n): k, v =
        pass_on([k, v]); owner = (rank - step) % n; out, lse = merge_partials(out, lse,
        *partial_attention(q, k, v, mask of owner)); return out, lse.
        """,
    ),
    passed="each block of keys and values goes round once, and none is kept",
    contract=Contract(
        takes="q, k and v (B, H, T, D) of this rank, scores of any size; positions of all ranks, "
        "in any split",
        allowed=POINT_TO_POINT,
        sends="each rank sends n - 1 blocks of keys and values, to the next rank",
        holds=NONE_KEPT,
    ),
    points=3,
)
