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

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd.function import once_differentiable
from torch.profiler import record_function

from course_lib.techniques.collectives.members import Members

from .arguments import look
from .masks import Sight, same_document
from .split import TokenSplit


def ulysses_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    split: TokenSplit,
    group: dist.ProcessGroup | None = None,
    *,
    causal: bool = True,
    documents: torch.Tensor | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """As `ring_attention`, by two all-to-alls each way.

    Raises `ValueError` too if n does not divide the H query heads, or if of n and the K heads of
    keys and values neither divides the other.
    """
    members = Members.of(group)
    sight, scale = look(q, k, v, split, members, causal, documents, scale)
    k, v = _enough_heads(q, k, v, len(members))
    per_rank = [x.unflatten(1, (len(members), -1)) for x in (q, k, v)]  # (B, n, heads/n, T_r, D)
    leaving = torch.cat(per_rank, 2).transpose(0, 1)
    arrived = TokensToHeads.apply(leaving, split, members)  # (B, (H + 2 K)/n, T, D)
    queries, keys, values = arrived.split([x.shape[2] for x in per_rank], 1)
    mixed = F.scaled_dot_product_attention(
        queries,
        keys,
        values,
        attn_mask=_mask(sight),
        is_causal=causal and documents is None,
        scale=scale,
        enable_gqa=queries.shape[1] != keys.shape[1],
    )
    return HeadsToTokens.apply(mixed, split, members).flatten(1, 2)


class TokensToHeads(torch.autograd.Function):
    """(n, B, h, T_r, D), h heads for every rank, to this rank's, of all tokens: (B, h, T, D)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, split: TokenSplit, members: Members) -> torch.Tensor:
        ctx.split, ctx.members = split, members
        return tokens_to_heads(x, split, members)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        return heads_to_tokens(gradient, ctx.split, ctx.members).transpose(0, 1), None, None


class HeadsToTokens(torch.autograd.Function):
    """(B, h, T, D) to (B, n, h, T_r, D): the way back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, split: TokenSplit, members: Members) -> torch.Tensor:
        ctx.split, ctx.members = split, members
        return heads_to_tokens(x, split, members)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        return tokens_to_heads(gradient.transpose(0, 1), ctx.split, ctx.members), None, None


def tokens_to_heads(x: torch.Tensor, split: TokenSplit, members: Members) -> torch.Tensor:
    """(n, B, h, T_r, D) to (B, h, T, D), in the order of the sequence."""
    batch, heads, _, size = x.shape[1:]
    shapes = [(batch, heads, tokens, size) for tokens in split.sizes]
    with record_function("all-to-all: tokens to heads"):
        return split.join(_all_to_all(list(x), shapes, members), dim=2)


def heads_to_tokens(x: torch.Tensor, split: TokenSplit, members: Members) -> torch.Tensor:
    """(B, h, T, D) to (B, n, h, T_r, D), the heads of rank 0 first."""
    batch, heads, _, size = x.shape
    leaving = [split.of(x, rank, dim=2) for rank in range(len(members))]
    shapes = [(batch, heads, split.size(members.rank), size)] * len(members)
    with record_function("all-to-all: heads to tokens"):
        return torch.stack(_all_to_all(leaving, shapes, members), 1)


def _all_to_all(
    leaving: list[torch.Tensor], shapes: Sequence[tuple[int, ...]], members: Members
) -> list[torch.Tensor]:
    """One tensor for each rank, for one of `shapes` from each."""
    flat = torch.cat([part.reshape(-1) for part in leaving])
    sizes = [torch.Size(shape).numel() for shape in shapes]
    arrived = flat.new_empty(sum(sizes))
    dist.all_to_all_single(
        arrived, flat, sizes, [part.numel() for part in leaving], group=members.group
    )
    return [part.view(shape) for part, shape in zip(arrived.split(sizes), shapes, strict=True)]


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
