"""All keys and values gathered first, then attention: what Llama 3 does.

One all-gather brings every rank the keys and values of the whole sequence. What is left is easy:
no ring, and any mask. Llama 3 (arXiv 2407.21783, section 3.3.2) takes it for that reason, and since
with grouped queries keys and values are few: 8 heads of them for 128 of queries.

    bytes      those of the ring. Backward gathers again instead of keeping, then a reduce-scatter
               brings each rank the sum of the gradients of its keys.
    time       the gather is not hidden behind computation. It grows with T, attention with T^2.
    memory     T keys and values per rank for as long as the layer runs, not 3 T/n as in the ring.

Where ranks have different numbers of tokens, all send as many as the largest.
"""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.autograd.function import once_differentiable
from torch.profiler import record_function

from course_lib.techniques.collectives.members import Members
from course_lib.techniques.collectives.torch_compat import all_gather_single, reduce_scatter_single

from .arguments import look
from .local_attention import add_block
from .masks import Sight
from .merge import nothing_yet
from .ring_backward import contribution
from .split import TokenSplit


def all_gather_attention(
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
    """As `ring_attention`, by one all-gather forward, and one and a reduce-scatter backward."""
    members = Members.of(group)
    sight, scale = look(q, k, v, split, members, causal, documents, scale)
    return _AllGatherAttention.apply(q, k, v, sight, members, scale)


class _AllGatherAttention(torch.autograd.Function):
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
        out, lse = nothing_yet(q)
        for source, (keys, values) in enumerate(_gather(k, v, sight, members)):
            for block in sight.blocks(source):
                add_block(out, lse, q, keys, values, block, scale)
        out = out.to(q.dtype)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.sight, ctx.members, ctx.scale = sight, members, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple:
        q, k, v, out, lse = ctx.saved_tensors
        dq = torch.zeros_like(q, dtype=lse.dtype)
        parts = [
            contribution(dq, grad_out, q, kv, out, lse, ctx.sight, source, ctx.scale)
            for source, kv in enumerate(_gather(k, v, ctx.sight, ctx.members))
        ]
        dk, dv = _scatter(parts, ctx.sight, ctx.members)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None


def _gather(k: torch.Tensor, v: torch.Tensor, sight: Sight, members: Members) -> list[torch.Tensor]:
    """Keys and values of every rank, (2, B, K, T_r, D) each."""
    own = _padded(torch.stack([k, v]), sight)
    arrived = own.new_empty(len(members) * own.shape[0], *own.shape[1:])
    with record_function("all-gather of keys and values"):
        all_gather_single(arrived, own, group=members.group)
    blocks = arrived.view(len(members), *own.shape)
    return [block[..., :t, :] for block, t in zip(blocks, sight.split.sizes, strict=True)]


def _scatter(parts: list[torch.Tensor], sight: Sight, members: Members) -> torch.Tensor:
    """The sum over the ranks of what each has for this one: (2, B, K, T_r, D)."""
    leaving = torch.cat([_padded(part, sight) for part in parts])
    own = leaving.new_empty(leaving.shape[0] // len(members), *leaving.shape[1:])
    with record_function("reduce-scatter of gradients of keys and values"):
        reduce_scatter_single(own, leaving, group=members.group)
    return own[..., : sight.split.size(members.rank), :]


def _padded(kv: torch.Tensor, sight: Sight) -> torch.Tensor:
    return F.pad(kv, (0, 0, 0, max(sight.split.sizes) - kv.shape[-2]))
