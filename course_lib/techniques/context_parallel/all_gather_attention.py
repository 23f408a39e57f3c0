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
from torch.autograd.function import once_differentiable
from torch.profiler import record_function

from course_lib.techniques.collectives.members import Members
from course_lib.techniques.collectives.torch_compat import all_gather_single, reduce_scatter_single

from .arguments import look
from .local_attention import add_block
from .masks import Sight
from .merge import nothing_yet
from .ring_backward import contribute
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
        dq, sums = _contributions(grad_out, q, k, v, out, lse, ctx.sight, ctx.members, ctx.scale)
        dk, dv = _scatter(sums, ctx.sight, ctx.members)
        return dq.to(q.dtype), dk.to(k.dtype), dv.to(v.dtype), None, None, None


def _contributions(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    sight: Sight,
    members: Members,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """dq, and what this rank's queries give to the gradients of all ranks' keys and values.

    The second is (n, 2, B, K, T_max, D), in the order of the ranks.
    """
    dq = torch.zeros_like(q, dtype=lse.dtype)
    sums = lse.new_zeros(len(members), *_padded_shape(k, sight))
    for source, kv in enumerate(_gather(k, v, sight, members)):
        dkv = sums[source, ..., : kv.shape[-2], :]
        contribute(dq, dkv, grad_out, q, kv, out, lse, sight, source, scale)
    return dq, sums


def _gather(k: torch.Tensor, v: torch.Tensor, sight: Sight, members: Members) -> list[torch.Tensor]:
    """Keys and values of every rank, (2, B, K, T_r, D) each."""
    own = k.new_zeros(_padded_shape(k, sight))
    for kind, tensor in enumerate((k, v)):
        own[kind, ..., : k.shape[-2], :] = tensor
    arrived = own.new_empty(len(members), *own.shape)
    with record_function("all-gather of keys and values"):
        all_gather_single(arrived.flatten(0, 1), own, group=members.group)
    return [block[..., :t, :] for block, t in zip(arrived, sight.split.sizes, strict=True)]


def _scatter(sums: torch.Tensor, sight: Sight, members: Members) -> torch.Tensor:
    """The sum over the ranks of what each has for this one: (2, B, K, T_r, D)."""
    own = sums.new_empty(sums.shape[1:])
    with record_function("reduce-scatter of gradients of keys and values"):
        reduce_scatter_single(own, sums.flatten(0, 1), group=members.group)
    return own[..., : sight.split.size(members.rank), :]


def _padded_shape(k: torch.Tensor, sight: Sight) -> tuple[int, ...]:
    """Of keys and values with as many tokens as the largest part has: (2, B, K, T_max, D)."""
    return 2, *k.shape[:2], max(sight.split.sizes), k.shape[3]
