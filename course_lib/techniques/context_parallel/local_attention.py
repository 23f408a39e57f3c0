"""Attention of a block of queries to a block of keys, on one rank, and its backward pass.

Written out, which holds the scores of a block in memory, and by torch's kernel for CPUs, which does
not. F.scaled_dot_product_attention calls that kernel, too, but returns no logarithm for `merge`,
and has no backward pass for a softmax that went on elsewhere.

Shapes: q (B, H, Tq, D); k, v (B, K, Tk, D), where K divides H. H/K query heads in a row use one
head of keys and values (grouped-query attention, arXiv 2305.13245); they take turns here, so keys
are never written out H/K times.
"""

from collections.abc import Iterator

import torch

from .masks import Block, Mask, Seen
from .merge import accumulating, merge


def add_block(
    out: torch.Tensor,
    lse: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    block: Block,
    scale: float,
) -> None:
    """Take the keys of `block` into what its queries have so far: `out` and `lse`, in place."""
    k, v = k[:, :, block.keys], v[:, :, block.keys]
    for out_part, lse_part, queries in _by_group(k, block.queries, out, lse, q):
        merge(out_part, lse_part, *attend(queries, k, v, block.mask, scale))


def add_gradients(
    dq: torch.Tensor,
    dk: torch.Tensor,
    dv: torch.Tensor,
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    block: Block,
    scale: float,
) -> None:
    """Add what `block` contributes to the gradients of q, k and v, in place.

    out, lse: of the softmax over all keys, of which those of the block are some.
    """
    dk, dv, k, v = (x[:, :, block.keys] for x in (dk, dv, k, v))
    for dq_part, dout, qs, o, ls in _by_group(k, block.queries, dq, grad_out, q, out, lse):
        found = attend_backward(dout, qs, o, ls, k, v, block.mask, scale)
        for total, part in zip((dq_part, dk, dv), found, strict=True):
            total += part
        del found, part  # before the next are made


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Mask, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention to these keys alone, where K = H: out like `q`, and lse (B, H, Tq).

    lse is in float32 at least, and -inf where a query sees no key.
    """
    return (_fused if q.is_cpu else attend_written_out)(q, k, v, mask, scale)


def attend_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Mask,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What these keys contribute to the gradients of q, k and v, where K = H.

    out, lse: of the softmax over all keys, of which these are some.
    """
    backward = _fused_backward if q.is_cpu else backward_written_out
    return backward(grad_out, q, out, finite(lse), k, v, mask, scale)


# -------------------------------------------------------------------------------------------------
# Written out
# -------------------------------------------------------------------------------------------------


def attend_written_out(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Mask, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = _scores(q, k, mask, scale)
    lse = scores.logsumexp(-1)  # (B, H, Tq)
    weights = (scores - finite(lse).unsqueeze(-1)).exp()
    return (weights @ v.to(weights.dtype)).to(q.dtype), lse


def backward_written_out(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Mask,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """With p the weights and s the scores: ds = p (dp - sum_j p dp) and sum_j p dp = out . dout.

    Dao et al., arXiv 2205.14135, appendix B.4.
    """
    weights = (_scores(q, k, mask, scale) - lse.unsqueeze(-1)).exp()
    dout, o, queries, keys, values = (x.to(weights.dtype) for x in (grad_out, out, q, k, v))
    dv = weights.mT @ dout
    dscores = weights * (dout @ values.mT - (dout * o).sum(-1, keepdim=True)) * scale
    return (dscores @ keys).to(q.dtype), (dscores.mT @ queries).to(k.dtype), dv.to(v.dtype)


def _scores(q: torch.Tensor, k: torch.Tensor, mask: Mask, scale: float) -> torch.Tensor:
    """(B, H, Tq, Tk), -inf where a query does not see a key."""
    dtype = accumulating(q.dtype)
    scores = q.to(dtype) @ k.to(dtype).mT * scale
    if mask is Seen.TRIANGLE:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
    return scores.masked_fill(~mask, -torch.inf) if isinstance(mask, torch.Tensor) else scores


def finite(lse: torch.Tensor) -> torch.Tensor:
    """For queries that see no key: exp(-inf - 0) is 0, and exp(-inf + inf) no number."""
    return lse.masked_fill(lse == -torch.inf, 0.0)


# -------------------------------------------------------------------------------------------------
# By the kernel that F.scaled_dot_product_attention takes on a CPU
# -------------------------------------------------------------------------------------------------


def _fused(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Mask, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        q, k, v, 0.0, mask is Seen.TRIANGLE, attn_mask=_bias(mask, q), scale=scale
    )
    if isinstance(mask, torch.Tensor):  # the kernel says 0 for a query that sees nothing
        lse = lse.masked_fill(~mask.any(-1), -torch.inf)
    return out, lse


def _fused_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: Mask,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    bias, triangle = _bias(mask, q), mask is Seen.TRIANGLE
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad_out, q, k, v, out, lse, 0.0, triangle, attn_mask=bias, scale=scale
    )


def _bias(mask: Mask, q: torch.Tensor) -> torch.Tensor | None:
    if not isinstance(mask, torch.Tensor):
        return None
    return q.new_zeros(mask.shape).masked_fill_(~mask, -torch.inf)


# -------------------------------------------------------------------------------------------------
# Grouped queries
# -------------------------------------------------------------------------------------------------


def _by_group(
    k: torch.Tensor, queries: slice, *tensors: torch.Tensor
) -> Iterator[tuple[torch.Tensor, ...]]:
    """Views of the tensors (B, H, T, ...) at these queries, with K heads (B, K, Tq, ...) each.

    The first query head of every head of keys, then the second, and so on.
    """
    parts = (x[:, :, queries].unflatten(1, (k.shape[1], -1)).unbind(2) for x in tensors)
    return zip(*parts, strict=True)
