"""Softmax over two sets of keys, from the softmax over each.

For one query with scores s_j and values v_j, attention to a set of keys gives two numbers and a
vector that say all there is to know about it:

    lse = log(sum_j exp s_j)        out = sum_j exp(s_j - lse) v_j

Over both sets together, the sum of exponentials is the sum of two sums, so each set's `out` counts
by its share of it:

    lse  = log(exp lse_a + exp lse_b)
    out  = out_a + w (out_b - out_a)        w = exp(lse_b - lse) = sigmoid(lse_b - lse_a)

Nothing overflows, since only differences are exponentiated. This is how FlashAttention walks over
the keys of one device (Dao et al., arXiv 2205.14135, section 3.1), and how ring attention walks
over those of all devices (Liu et al., arXiv 2310.01889, 2023).
"""

import torch


def nothing_yet(queries: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What attention to no keys gives: zeros (..., T, D), and -inf (..., T).

    In float32 at least, so that many merges round no more than one.
    """
    dtype = accumulating(queries.dtype)
    out = queries.new_zeros(queries.shape, dtype=dtype)
    return out, out.new_full(queries.shape[:-1], -torch.inf)


def merge(
    out: torch.Tensor, lse: torch.Tensor, more_out: torch.Tensor, more_lse: torch.Tensor
) -> None:
    """Take further keys into `out` (..., T, D) and `lse` (..., T), both in place.

    more_out, more_lse: what attention to the further keys alone gives. Where `lse` is -inf, no key
    was seen, and `out` is 0.
    """
    # -inf - -inf is no number: neither set had a key, and both outputs are 0.
    share = torch.sigmoid(more_lse - lse).nan_to_num_(0.0)  # of the further keys
    out.lerp_(more_out.to(out.dtype), share.unsqueeze(-1).to(out.dtype))
    torch.logaddexp(lse, more_lse.to(lse.dtype), out=lse)


def accumulating(dtype: torch.dtype) -> torch.dtype:
    """The precision in which many summands are added up."""
    return torch.promote_types(dtype, torch.float32)
