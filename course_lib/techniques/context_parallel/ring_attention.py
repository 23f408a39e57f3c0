"""Ring attention: queries stay, keys and values travel round the ring of ranks.

Every rank holds T/n tokens. At step s, rank r attends with its queries to the keys of rank r - s,
and merges what comes out with what it has (merge.py). While it computes, these keys are on their
way to rank r + 1, and the next ones come in from rank r - 1. No rank ever holds more than two
blocks of keys beside its own, however long the sequence is:

    step          0     1     2     3
    rank 0 has    0     3     2     1         of the keys and values
    rank 1 has    1     0     3     2
    rank 2 has    2     1     0     3
    rank 3 has    3     2     1     0

Sent per rank, forward: (n-1)/n of the keys and values of the whole sequence, 2 B K T D elements.
Backward they travel again, and their gradients with them: see ring_backward.py.

Liu et al., "Ring attention with blockwise transformers for near-infinite context", arXiv 2310.01889
(2023). The causal mask makes some blocks empty, which are skipped; split.py has the splits that
leave every rank the same work.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable
from torch.profiler import record_function

from course_lib.techniques.collectives.members import Members

from .arguments import look
from .local_attention import add_block
from .masks import Sight
from .merge import nothing_yet
from .ring_backward import ring_backward
from .split import TokenSplit
from .travelling import travelling


def ring_attention(
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
    """Attention of this rank's queries to the keys of all ranks: (B, H, T_r, D), like `q`.

    q: (B, H, T_r, D), and k, v (B, K, T_r, D) with K dividing H, of the tokens that `split` gives
        to this rank.
    documents: (B, T) or (T,), of the whole sequence; see masks.py.
    scale: of the scores, 1 / sqrt(D) unless given.

    All ranks of `group` call it, forward and backward. Raises `ValueError`, before anything is
    sent, for shapes that fit neither each other nor the split.
    """
    members = Members.of(group)
    sight, scale = look(q, k, v, split, members, causal, documents, scale)
    return _RingAttention.apply(q, k, v, sight, members, scale)


def ring_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    sight: Sight,
    members: Members,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Out (B, H, T_r, D) and lse (B, H, T_r), in float32 at least."""
    out, lse = nothing_yet(q)
    for source, (keys, values) in travelling(torch.stack([k, v]), sight.split.sizes, members):
        with record_function(f"attention to the keys of rank {source}"):
            for block in sight.blocks(source):
                add_block(out, lse, q, keys, values, block, scale)
    return out, lse


class _RingAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        sight: Sight,
        members: Members,
        scale: float,
    ) -> torch.Tensor:
        out, lse = ring_forward(q, k, v, sight, members, scale)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.sight, ctx.members, ctx.scale = sight, members, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple:
        q, k, v, out, lse = ctx.saved_tensors
        dq, dk, dv = ring_backward(grad_out, q, k, v, out, lse, ctx.sight, ctx.members, ctx.scale)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None
