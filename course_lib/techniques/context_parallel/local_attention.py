"""Attention of a block of queries to a block of keys, on one rank, and its backward pass.

Written out, then by torch's kernel for CPUs, which never holds the scores in memory. F.sdpa gives
neither the logarithm that `merge` needs, nor a backward pass for a softmax that went on elsewhere.

Shapes: q (B, H, Tq, D); k, v (B, K, Tk, D), where K divides H: H/K query heads in a row use one
head of keys and values (grouped-query attention, arXiv 2305.13245).
"""

import torch

from .masks import Mask, Seen
from .merge import accumulating


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Mask, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention to these keys alone: out like `q`, and lse (B, H, Tq), in float32 at least."""
    forward = _fused if q.is_cpu else attend_written_out
    parts = [forward(each, k, v, mask, scale) for each in _by_group(q, k)]
    outs, lses = zip(*parts, strict=True)
    return _join(outs), _join(lses)


def attend_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    mask: Mask,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """What these keys contribute to the gradients of q, k and v.

    out, lse: of the softmax over all keys, of which these are some.
    """
    backward = _fused_backward if q.is_cpu else backward_written_out
    lse = lse.masked_fill(lse == -torch.inf, 0.0)  # exp(-inf - lse) is to be 0
    groups = zip(*(_by_group(each, k) for each in (grad_out, q, out, lse)), strict=True)
    parts = [backward(g, qs, k, v, o, ls, mask, scale) for g, qs, o, ls in groups]
    dq, dk, dv = zip(*parts, strict=True)
    return _join(dq), _sum(dk), _sum(dv)


# -------------------------------------------------------------------------------------------------
# Written out, with as many heads of queries as of keys
# -------------------------------------------------------------------------------------------------


def attend_written_out(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Mask, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = _scores(q, k, mask, scale)
    lse = scores.logsumexp(-1)  # (B, H, Tq)
    weights = (scores - _finite(lse).unsqueeze(-1)).exp()
    return (weights @ v.to(weights.dtype)).to(q.dtype), lse


def backward_written_out(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    mask: Mask,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """With p the weights and s the scores: ds = p (dp - sum_j p dp) and sum_j p dp = out . dout.

    Dao et al., arXiv 2205.14135, appendix B.4.
    """
    weights = (_scores(q, k, mask, scale) - _finite(lse).unsqueeze(-1)).exp()  # of the whole
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


def _finite(lse: torch.Tensor) -> torch.Tensor:
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
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
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


def _by_group(x: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Of (B, H, ...) the first query head of every key head, then the second: (B, K, ...) each."""
    return x.unflatten(1, (k.shape[1], -1)).unbind(2)


def _join(groups: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The inverse."""
    return groups[0] if len(groups) == 1 else torch.stack(groups, 2).flatten(1, 2)


def _sum(groups: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return groups[0] if len(groups) == 1 else torch.stack(groups).sum(0)
