"""Ring attention over documents that share a sequence.

packed_ring_attention(q, k, v, positions, documents) -> out
    As `ring_attention`; documents[r] (T) is the number of the document that each of rank r's tokens
    belongs to. A token sees those of its own document that are not later. Blocks in which a rank's
    queries see nothing are handed on, and not computed with.
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
from course_lib.checks.exercises._operations import Operations, computed_in_vain

from ._attention import Tensors, differs, shuffled, striped, zigzag
from ._attention import plain as plain_split
from ._ring import (
    NONE_KEPT,
    Visible,
    blind_somewhere,
    copies,
    forward_mistakes,
    in_order,
    kept,
    over_all,
    own,
    own_tokens,
    round_trip,
    split_case,
    too_large,
)


def _cases(rng: random.Random) -> list[Case]:
    n = 5 * rng.randint(3, 5)
    some = sorted(rng.sample(range(1, n), 3))
    lengths = [b - a for a, b in zip([0, *some], [*some, n], strict=True)]
    return [
        _case(rng, "striped split", striped(8, 2), [3, 5]),
        _case(rng, "plain split", plain_split(12, 3), [4, 4, 4]),
        _case(rng, "plain split", plain_split(12, 3), [2, 7, 3]),
        _case(rng, "zigzag split", zigzag(20, 5), [9, 1, 10]),
        _case(rng, "any tokens on any rank", shuffled(rng, n, 5), lengths),
        _case(rng, "all tokens", plain_split(5, 1), [2, 3]),
    ]


def _case(
    rng: random.Random, words: str, positions: list[torch.Tensor], lengths: list[int]
) -> Case:
    case = split_case(rng, words, positions)
    # The numbers say only which tokens belong together: they neither begin with 0 nor ascend.
    names = torch.tensor(rng.sample(range(1, 100), len(lengths)))
    whole = names.repeat_interleave(torch.tensor(lengths))
    documents = [whole[each] for each in positions]
    lengths_told = f"documents of {', '.join(map(str, lengths))} tokens, {case.label}"
    return Case(case.world_size, lengths_told, {**case.data, "documents": documents})


def _on_rank(answer: Callable, case: Case) -> Any:
    q, k, v = own(case, dist.get_rank(), "q", "k", "v")
    with Operations() as made:
        returned = answer(q, k, v, copies(case.data["positions"]), copies(case.data["documents"]))
    found = {"largest": made.largest, "arrived": made.arrived, "products": made.products}
    return {"returned": plain(returned), **found}


def _of_documents(case: Case) -> Visible:
    documents, earlier = case.data["documents"], in_order(case)

    def visible(a: int, b: int) -> torch.Tensor:
        return (documents[a][:, None] == documents[b][None, :]) & earlier(a, b)

    return visible


def _judge(case: Case, observation: Observation) -> Finding | None:
    n, visible = case.world_size, _of_documents(case)
    for rank, seen in enumerate(observation.values):
        exact = over_all(case, rank, visible)[0]
        looks = partial(_mistakes, case, rank, visible)
        blind = blind_somewhere(case, rank, visible)
        finding = differs("out", seen["returned"], exact, torch.float64, rank, looks, blind)
        if finding:
            return finding
    block = 2 * case.data["k"].nbytes // n
    nbytes = (n - 1) * block
    rule = f"a rank hands on n - 1 = {n - 1} blocks, even those in which it sees nothing"
    return (
        round_trip(case, observation, nbytes, nbytes, rule)
        or too_large(case, observation)
        or kept(case, observation)
        or _computed_in_vain(case, observation, visible)
    )


def _mistakes(case: Case, rank: int, visible: Visible) -> Tensors:
    documents, earlier = case.data["documents"], in_order(case)

    def same(a: int, b: int) -> torch.Tensor:
        return documents[a][:, None] == documents[b][None, :]

    def not_after(a: int, b: int) -> torch.Tensor:
        return (documents[a][:, None] >= documents[b][None, :]) & earlier(a, b)

    def in_own_block(a: int, b: int) -> torch.Tensor:
        return same(a, b) & earlier(a, b) if a == b else same(a, b)

    return {
        "causal only in the rank's own block: compare positions in every block": (
            over_all(case, rank, in_own_block)[0]
        ),
        "attention across the borders of documents: a token sees only its own": (
            over_all(case, rank, earlier)[0]
        ),
        "attention to later tokens of the document as well: it should be causal": (
            over_all(case, rank, same)[0]
        ),
        "attention to documents with a smaller number as well: the numbers should be equal": (
            over_all(case, rank, not_after)[0]
        ),
        **forward_mistakes(case, rank, visible),
    }


def _computed_in_vain(case: Case, observation: Observation, visible: Visible) -> Finding | None:
    n, (batch, heads, _, size) = case.world_size, case.data["q"].shape
    tokens = len(case.data["positions"][0])
    for rank, seen in enumerate(observation.values):
        blocks = sum(bool(visible(rank, other).any()) for other in range(n))
        most = blocks * 4 * batch * heads * tokens * tokens * size
        if seen["products"] > most:
            why = (
                "this rank computes with blocks in which its queries see nothing: they see "
                f"something in {blocks} of {n}"
            )
            return computed_in_vain(why, rank, most, seen["products"])
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(q, k, v, positions, documents)",
    cases=_cases,
    on_rank=_on_rank,
    own=dict.fromkeys(("q", "k", "v", "grad_out"), own_tokens),
    judge=_judge,
    hints=(
        """
        It is ring_attention with another mask. When may a query see a key: what must hold of their
        positions, and what of their documents? And what does a block cost in which no query sees
        anything?
        """,
        """
        visible = (positions[r][:, None] >= positions[owner][None, :]) & (documents[r][:, None] ==
        documents[owner][None, :]). Hand the block on in any case, and compute only if
        visible.any().
        """,
        """
        out, lse = partial_attention(q, k, v, visible of the own block); for step in range(1, n): k,
        v = pass_on([k, v]); visible = that of owner (rank - step) % n; if visible.any(): out, lse =
        merge_partials(out, lse, *partial_attention(q, k, v, visible)); return out.
        """,
    ),
    passed="no token sees another document, and nothing is computed in vain",
    contract=Contract(
        takes="as for ring_attention; equal numbers in documents mean the same document",
        allowed=POINT_TO_POINT,
        sends="each rank sends n - 1 blocks of keys and values, to the next rank",
        holds=f"{NONE_KEPT}; no matrix products with a block of which nothing is seen",
    ),
    points=2,
)
