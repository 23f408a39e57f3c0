"""Ulysses: for attention, the ranks divide heads among them instead of tokens.

Between the layers a rank holds its tokens of all heads. An all-to-all hands it all tokens of its
heads; attention runs as in one process, and a second all-to-all takes the outputs back:

    (B, H, T/n, D) --all-to-all--> (B, H/n, T, D) --attention--> --all-to-all--> (B, H, T/n, D)

Sent per rank and layer, forward: (n-1)/n of what it holds, B T/n D (2 H + 2 K) elements. That falls
with n, while a ring sends (n-1)/n 2 B K T D on every rank, however many there are. In exchange n is
at most the number of heads, and nothing hides the messages.

With fewer heads K of keys and values than ranks, several ranks need the same ones. These are
repeated n/K times before they travel.

Jacobs et al., "DeepSpeed Ulysses", arXiv 2309.14509 (2023).
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd.function import once_differentiable
from torch.profiler import record_function

from course_lib.techniques.collectives.members import Members

from .attention import Setting, over_split_sequences
from .masks import Sight, same_document
from .split import TokenSplit


@over_split_sequences
def ulysses_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, setting: Setting
) -> torch.Tensor:
    """By two all-to-alls each way.

    Raises `ValueError` too if n does not divide the H query heads, or if of n and the K heads of
    keys and values neither divides the other.
    """
    sight, members, split = setting.sight, setting.members, setting.sight.split
    n = len(members)
    k, v = _enough_heads(q, k, v, n)
    by_rank = [x.unflatten(1, (n, -1)).permute(1, 3, 0, 2, 4) for x in (q, k, v)]
    leaving = torch.cat(by_rank, 3)  # (n, T_r, B, h, D), where h = (H + 2 K)/n
    here = TokensToHeads.apply(leaving, split, members).permute(1, 2, 0, 3)  # (B, h, T, D)
    queries, keys, values = here.split([x.shape[3] for x in by_rank], 1)
    mixed = F.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=_mask(sight),
        is_causal=sight.causal and sight.documents is None,
        scale=setting.scale,
        enable_gqa=queries.shape[1] != keys.shape[1],
    )
    home = HeadsToTokens.apply(mixed.permute(2, 0, 1, 3), split, members)
    return home.permute(2, 0, 3, 1, 4).flatten(1, 2)


class TokensToHeads(torch.autograd.Function):
    """(n, T_r, B, h, D), h heads for every rank, to this rank's, of all tokens: (T, B, h, D)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, split: TokenSplit, members: Members) -> torch.Tensor:
        ctx.split, ctx.members = split, members
        return tokens_to_heads(x, split, members)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        return heads_to_tokens(gradient, ctx.split, ctx.members), None, None


class HeadsToTokens(torch.autograd.Function):
    """The way back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, split: TokenSplit, members: Members) -> torch.Tensor:
        ctx.split, ctx.members = split, members
        return heads_to_tokens(x, split, members)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        return tokens_to_heads(gradient, ctx.split, ctx.members), None, None


def tokens_to_heads(x: torch.Tensor, split: TokenSplit, members: Members) -> torch.Tensor:
    """(n, T_r, B, h, D) to (T, B, h, D), in the order of the sequence."""
    arrived = x.new_empty(split.tokens, *x.shape[2:])
    with record_function("all-to-all: tokens to heads"):
        _all_to_all(arrived, split.sizes, x.flatten(0, 1), [x.shape[1]] * len(x), members)
    return arrived.index_select(0, split.order(x.device).argsort())


def heads_to_tokens(x: torch.Tensor, split: TokenSplit, members: Members) -> torch.Tensor:
    """(T, B, h, D) to (n, T_r, B, h, D), the heads of rank 0 first."""
    n, tokens = len(members), split.size(members.rank)
    arrived = x.new_empty(n * tokens, *x.shape[1:])
    leaving = x.index_select(0, split.order(x.device))
    with record_function("all-to-all: heads to tokens"):
        _all_to_all(arrived, [tokens] * n, leaving, split.sizes, members)
    return arrived.unflatten(0, (n, tokens))


def _all_to_all(
    arrived: torch.Tensor,
    from_each: list[int],
    leaving: torch.Tensor,
    to_each: list[int],
    members: Members,
) -> None:
    """Rows of tokens, so many from and to each rank."""
    dist.all_to_all_single(arrived, leaving.contiguous(), from_each, to_each, group=members.group)


def _enough_heads(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, n: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values with at least one head for every rank."""
    heads, kv_heads = q.shape[1], k.shape[1]
    if heads % n:
        raise ValueError(f"{heads} query heads do not divide over {n} ranks")
    if kv_heads % n == 0:
        return k, v
    if n % kv_heads:
        raise ValueError(
            f"{kv_heads} heads of keys and values neither divide over {n} ranks, nor can each be "
            f"repeated for the same number of ranks"
        )
    return k.repeat_interleave(n // kv_heads, 1), v.repeat_interleave(n // kv_heads, 1)


def _mask(sight: Sight) -> torch.Tensor | None:
    """(B or 1, 1, T, T) where documents ask for one."""
    if sight.documents is None:
        return None
    documents = torch.atleast_2d(sight.documents)
    seen = same_document(documents, documents)
    return (seen.tril() if sight.causal else seen).unsqueeze(1)
