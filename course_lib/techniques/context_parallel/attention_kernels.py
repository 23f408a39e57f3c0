"""Attention of some queries to some keys, on one rank, and its backward pass.

Written out, which holds the scores in memory, and by torch's kernel for CPUs, which does not.
F.scaled_dot_product_attention calls that kernel, too, but returns no logarithm for `merge`, and has
no backward pass for a softmax that went on elsewhere.

Shapes: q (B, H, Tq, D); k, v (B, H, Tk, D).
"""

import torch

from .masks import Mask, Seen
from .merge import accumulating


def attend(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: Mask, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention to these keys alone: out like `q`, and lse (B, H, Tq).

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
    """What these keys contribute to the gradients of q, k and v.

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
