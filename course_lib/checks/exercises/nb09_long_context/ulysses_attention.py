"""Attention for which ranks exchange tokens for heads.

ulysses_attention(q, k, v) -> (B, H, T/n, D)
    q, k, v (B, H, T/n, D): rank r has the r-th piece of the sequence, all heads. Causal. The output
    of this rank's tokens, all heads. In between each rank has all tokens of H/n heads, heads in
    rank order (Jacobs et al., "DeepSpeed Ulysses", 2023). ValueError, before anything is sent,
    where the ranks do not divide the heads.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from course_lib.checks import traffic_limits
from course_lib.checks.call_answer import plain
from course_lib.checks.contract import Contract
from course_lib.checks.exercise import Case, Clue, Exercise, Finding, Observation
from course_lib.checks.exercises._operations import Operations, computed_in_vain
from course_lib.checks.exercises._refusals import heads_refused
from course_lib.text import counted

from ._attention import Tensors, attend, causal, differs, sequence
from ._attention import plain as plain_split
from ._ring import own, own_tokens

_ALL_TO_ALL = frozenset({"all_to_all"})


def _cases(rng: random.Random) -> list[Case]:
    sizes = [(2, 2, 6, 1), (3, 6, 9, 1), (4, 4, 4 * rng.randint(2, 4), 2), (1, 3, 4, 1)]
    return [_case(rng, *size) for size in (*sizes, (2, 3, 4, 1), (3, 2, 6, 1))]


def _case(rng: random.Random, ranks: int, heads: int, tokens: int, batch: int) -> Case:
    positions = plain_split(tokens, ranks)
    data = {**sequence(rng, positions, batch, heads), "positions": positions}
    label = f"{counted(heads, 'head')} and {tokens} tokens over {counted(ranks, 'rank')}"
    if heads % ranks == 0:
        return Case(ranks, label, data)
    clue = Clue(
        f"{ranks} ranks cannot share {heads} heads: raise a ValueError with both numbers",
        "AssertionError",
        "invalid tensor size",
        "does not match world size",
    )
    return Case(ranks, label, data, clue)


def _on_rank(answer: Callable, case: Case) -> Any:
    heads = case.data["q"].shape[1]
    try:
        with Operations() as made:
            returned = answer(*own(case, dist.get_rank(), "q", "k", "v"))
    except ValueError as error:
        if heads % case.world_size == 0:
            raise
        return {"refused": str(error)}
    return {"returned": plain(returned), "products": made.products}


def _judge(case: Case, observation: Observation) -> Finding | None:
    heads = case.data["q"].shape[1]
    if heads % case.world_size:
        return heads_refused(case, observation, heads)
    q, k, v = (case.data[name] for name in ("q", "k", "v"))
    tokens = torch.arange(q.shape[2])
    exact, _ = attend(q, k, v, causal(tokens, tokens))
    for rank, seen in enumerate(observation.values):
        here = case.data["positions"][rank]
        wanted = exact.index_select(2, here)
        looks = partial(_mistakes, case, rank, exact)
        finding = differs("the output", seen["returned"], wanted, torch.float64, rank, looks)
        if finding:
            return finding
    return _too_much(case, observation)


def _mistakes(case: Case, rank: int, exact: torch.Tensor) -> Tensors:
    n, positions = case.world_size, case.data["positions"]
    if n == 1:
        return {}
    q, k, v = (case.data[name] for name in ("q", "k", "v"))
    (own_q, own_k, own_v), here = own(case, rank, "q", "k", "v"), positions[rank]
    tokens = torch.arange(q.shape[2])
    places = torch.arange(len(here))
    everything = torch.ones(len(tokens), len(tokens), dtype=torch.bool)
    heads = torch.arange(q.shape[1])
    dealt = heads.view(-1, n).T.flatten()
    return {
        "attention of this rank's tokens to each other: the others' keys are missing": (
            attend(own_q, own_k, own_v, causal(places, places))[0]
        ),
        "attention to all tokens, later ones too: make it causal": (
            attend(q, k, v, everything)[0].index_select(2, here)
        ),
        "the right heads in another order: heads come back in rank order": (
            exact.index_select(1, dealt).index_select(2, here)
        ),
        "the right heads in another order: put rank r's heads where it took them from": (
            exact.index_select(1, dealt.argsort()).index_select(2, here)
        ),
    }


def _too_much(case: Case, observation: Observation) -> Finding | None:
    n, (batch, heads, tokens, size) = case.world_size, case.data["q"].shape
    local = case.data["q"].nbytes // n
    nbytes = 4 * local * (n - 1) // n
    rule = "four exchanges, q, k, v and the output, of each of which (n - 1)/n goes elsewhere"
    for rank, seen in enumerate(observation.values):
        if finding := traffic_limits.sent(observation, rank, nbytes, nbytes, rule):
            return finding
        most = 4 * batch * heads // n * tokens * tokens * size
        if seen["products"] > most:
            why = f"this rank computed too much: of {heads} heads it has {heads // n}"
            return computed_in_vain(why, rank, most, seen["products"])
    return None


EXERCISE = Exercise(
    module=__name__,
    signature="(q, k, v)",
    cases=_cases,
    on_rank=_on_rank,
    own=dict.fromkeys(("q", "k", "v", "grad_out"), own_tokens),
    judge=_judge,
    hints=(
        """
        A head needs all tokens, but no other head. So write one function that exchanges: it cuts a
        tensor along one dimension, sends part r to rank r, and joins what comes along another one.
        What has to be exchanged before attention, and what after?
        """,
        """
        exchange(x, cut, join): parts = [p.contiguous() for p in x.chunk(n, cut)]; arrived = an
        empty tensor for each; dist.all_to_all(arrived, parts); torch.cat(arrived, join). Before
        attention cut the heads (1) and join tokens (2), after it the other way round.
        """,
        """
        if q.shape[1] % n: raise ValueError(f"{q.shape[1]} heads over {n} ranks"). q, k, v =
        (exchange(x, 1, 2) for x in (q, k, v)); out = F.scaled_dot_product_attention(q, k, v,
        is_causal=True); return exchange(out, 2, 1).
        """,
    ),
    passed="tokens for heads, and back: each rank attends to all tokens with its own heads",
    contract=Contract(
        takes="q, k and v (B, H, T/n, D), piece r of the sequence on rank r, any H",
        allowed=_ALL_TO_ALL,
        sends="of q, k, v and the output each rank sends (n - 1)/n; nothing where n does not "
        "divide H",
    ),
    points=2,
)
