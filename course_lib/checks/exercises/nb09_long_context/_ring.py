"""What the exercises about rings of keys and values share: their cases, looks, and what travels."""

import random
from collections.abc import Callable, Sequence

import torch

from course_lib.checks import traffic_limits
from course_lib.checks.exercise import Case, Finding, Observation
from course_lib.checks.rank_inputs import rows
from course_lib.text import counted

from ._attention import (
    Pair,
    Tensors,
    attend,
    causal,
    merged,
    part,
    plain,
    sequence,
    shuffled,
    striped,
    zigzag,
)

_LISTED = 8  # tokens: so many positions are named one by one
_KEPT = 3  # blocks: the one at work, the next, and one that a handle has not let go of yet

NO_LARGE = "no tensor is larger than the scores of one block of queries against one of keys (or"
NONE_KEPT = (
    f"{NO_LARGE} than two blocks of keys); at most {_KEPT} of the blocks that have arrived are in "
    "memory at a time"
)

Visible = Callable[[int, int], torch.Tensor]
"""Which of rank b's keys the queries of rank a see: visible(a, b)."""


def cases_of_splits(rng: random.Random) -> list[Case]:
    """In the first one every block is seen by every rank, so that every message matters."""
    splits = [
        ("striped split", striped(8, 2)),
        ("plain split", plain(8, 2)),
        ("plain split", plain(12, 3)),
        ("zigzag split", zigzag(12, 3)),
        ("striped split", striped(20, 5)),
        ("any tokens on any rank", shuffled(rng, 5 * rng.randint(4, 5), 5)),
        ("all tokens", plain(3, 1)),
    ]
    return [split_case(rng, words, positions) for words, positions in splits]


def split_case(rng: random.Random, words: str, positions: list[torch.Tensor]) -> Case:
    ranks, tokens = len(positions), sum(map(len, positions))
    label = f"{words}, {counted(tokens, 'token')} over {counted(ranks, 'rank')}"
    if tokens <= _LISTED:
        label = "positions " + " | ".join(" ".join(map(str, each.tolist())) for each in positions)
    return Case(ranks, label, {**sequence(rng, positions), "positions": positions})


def own(case: Case, rank: int, *names: str) -> list[torch.Tensor]:
    """The rank's tokens of the whole tensors of these names."""
    return [part(case.data[name], case.data["positions"][rank]) for name in names]


def own_tokens(tensor: torch.Tensor, case: Case, rank: int) -> torch.Tensor:
    """For `Exercise.own`: of a whole tensor, the rank's tokens."""
    return rows(lambda case, rank: case.data["positions"][rank].tolist(), dim=2)(tensor, case, rank)


def over(
    case: Case, rank: int, other: int, visible: torch.Tensor, scale: float | None = None
) -> Pair:
    """Attention of the rank's queries over another rank's keys."""
    (q,) = own(case, rank, "q")
    k, v = own(case, other, "k", "v")
    return attend(q, k, v, visible, scale)


def over_all(case: Case, rank: int, visible: Visible) -> Pair:
    """Attention of the rank's queries over the keys of all ranks."""
    ranks = range(case.world_size)
    return merged([over(case, rank, other, visible(rank, other)) for other in ranks])


def blind_somewhere(case: Case, rank: int, visible: Visible) -> torch.Tensor:
    """(T,): which of the rank's queries see nothing in one of the blocks."""
    seen = [visible(rank, other).any(1) for other in range(case.world_size)]
    return ~torch.stack(seen).all(0)


def copies(positions: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [each.clone() for each in positions]


def in_order(case: Case) -> Visible:
    """The causal mask between two ranks' tokens."""
    positions = case.data["positions"]
    return lambda a, b: causal(positions[a], positions[b])


# ---------------------------------------------------------------------------------------------


def forward_mistakes(case: Case, rank: int, visible: Visible) -> Tensors:
    """What known mistakes give as this rank's output."""
    n, tokens = case.world_size, len(case.data["positions"][rank])
    if n == 1:
        return {}
    scale_1 = [over(case, rank, other, visible(rank, other), 1.0) for other in range(n)]
    pairs = [over(case, rank, other, visible(rank, other)) for other in range(n)]
    outs = torch.stack([out for out, _ in pairs])
    everything = torch.ones(tokens, tokens, dtype=torch.bool)
    arrived = [(rank - step) % n for step in range(n)]
    masked_by_others = [
        over(case, rank, owner, visible(rank, (rank + step) % n))
        for step, owner in enumerate(arrived)
    ]
    masked_by_the_last = [
        over(case, rank, owner, visible(rank, before))
        for owner, before in zip(arrived, [rank, *arrived], strict=False)
    ]

    def without_itself(a: int, b: int) -> torch.Tensor:
        positions = case.data["positions"]
        return visible(a, b) & (positions[a][:, None] != positions[b][None, :])

    return {
        "attention to only this rank's own keys: nothing of the others has been merged": (
            pairs[rank][0]
        ),
        "attention to all keys, later ones too: make it causal, by positions": (
            over_all(case, rank, lambda a, b: everything)[0]
        ),
        "causal by the places in the blocks: what counts are the tokens' positions": (
            over_all(case, rank, lambda a, b: everything.tril())[0]
        ),
        "what comes out if the blocks are added up without their weights: merge them by lse": (
            outs.sum(0)
        ),
        "what comes out if the blocks are averaged: merge them by lse": outs.mean(0),
        "the mask of another rank's block: after s steps a rank has the block of rank - s, not "
        "rank + s": merged(masked_by_others)[0],
        "the mask of the block before: after s steps a rank has the block of rank - s": (
            merged(masked_by_the_last)[0]
        ),
        "what comes out if a token does not see itself: >=, not >": (
            over_all(case, rank, without_itself)[0]
        ),
        "without the last block that arrives: n - 1 steps bring n - 1 blocks, and there is one of "
        "your own": merged([pairs[owner] for owner in arrived[:-1]])[0],
        "without this rank's own block": merged([pairs[owner] for owner in arrived[1:]])[0],
        "what comes out without the division of the scores by the root of D": merged(scale_1)[0],
    }


# ---------------------------------------------------------------------------------------------


def round_trip(
    case: Case, observation: Observation, least: int, most: int, rule: str
) -> Finding | None:
    """What every rank sends: `least` to `most` bytes, all to the next rank."""
    n = case.world_size
    for rank in range(n):
        finding = traffic_limits.sent(observation, rank, least, most, rule) or traffic_limits.peers(
            observation, rank, [(rank + 1) % n], "keys and values go round a ring, to the next rank"
        )
        if finding:
            return finding
    return None


def too_large(case: Case, observation: Observation, together: int = 2) -> Finding | None:
    """No tensor grows with the number of ranks: at most the scores of a block, or some blocks.

    together: how many blocks may be one tensor, as keys and values that are one message.
    """
    k = case.data["k"]
    batch, heads, _, size = k.shape
    tokens = len(case.data["positions"][0])
    most = batch * heads * max(tokens * tokens, together * tokens * size)
    for rank, seen in enumerate(observation.values):
        if seen["largest"] > most:
            return Finding(
                "the numbers and the traffic are right, but a tensor was made that grows with the "
                "number of ranks. Merge each block when it is there, then let go of it",
                rank,
                expected=f"at most {most} elements, the scores of one block against another",
                got=f"a tensor of {seen['largest']} elements",
            )
    return None


def kept(case: Case, observation: Observation) -> Finding | None:
    """Of the blocks that have arrived, only a few are in memory at a time."""
    block = 2 * case.data["k"].nbytes // case.world_size
    for rank, seen in enumerate(observation.values):
        if seen["arrived"] > _KEPT * block:
            return Finding(
                "the numbers and the traffic are right, but blocks stay in memory after they were "
                "used, as many as there are ranks. Merge each when it is there, then let go of it",
                rank,
                expected=f"at most {_KEPT} blocks that have arrived, {_KEPT * block} bytes",
                got=f"{seen['arrived']} bytes",
            )
    return None
