"""Known answers to partial_attention."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from course_lib.checks.known_answers import right, wrong

INF = float("inf")


def scores_of(q, k, visible):
    return (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~visible, -INF)


def no_nan(lse):
    return lse.masked_fill(lse == -INF, 0)


@right
def by_the_largest_score(q, k, v, visible):
    scores = scores_of(q, k, visible)
    largest = scores.amax(-1, keepdim=True).clamp(min=-1e300 if q.dtype.itemsize == 8 else -1e38)
    weights = torch.exp(scores - largest)
    total = weights.sum(-1, keepdim=True)
    lse = (largest + total.log()).squeeze(-1)
    return weights @ v / total.clamp(min=1e-30), lse


@right
def softmax_without_nan(q, k, v, visible):
    scores = scores_of(q, k, visible)
    return [scores.softmax(-1).nan_to_num(0.0) @ v, torch.logsumexp(scores, dim=-1)]


@right
def with_torchs_own(q, k, v, visible):
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=visible)
    seeing = visible.any(-1)
    scores = torch.einsum("bhtd,bhkd->bhtk", q, k) * q.shape[-1] ** -0.5
    scores = torch.where(visible, scores, -INF)
    return torch.where(seeing[:, None], out, 0.0), scores.logsumexp(-1)


@right
def with_a_penalty(q, k, v, visible):
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    scores = scores + torch.where(visible, 0.0, -INF).to(q.dtype)
    lse = scores.logsumexp(-1)
    weights = torch.exp(scores - torch.nan_to_num(lse, neginf=0.0)[..., None])
    return torch.einsum("bhtk,bhkd->bhtd", weights, v), lse


@right
def query_by_query(q, k, v, visible):
    """Only the keys that a query sees are looked at."""
    out, lse = torch.zeros_like(q), q.new_full(q.shape[:-1], -INF)
    for t, row in enumerate(visible):
        seen = row.nonzero().flatten()
        if len(seen) == 0:
            continue
        scores = torch.einsum("bhd,bhkd->bhk", q[:, :, t], k[:, :, seen]) / math.sqrt(q.shape[-1])
        lse[:, :, t] = scores.logsumexp(-1)
        out[:, :, t] = torch.einsum("bhk,bhkd->bhd", scores.softmax(-1), v[:, :, seen])
    return out, lse


@right
def in_numpy(q, k, v, visible):
    queries, keys, values, seen = (x.numpy() for x in (q, k, v, visible))
    scores = np.einsum("bhtd,bhkd->bhtk", queries, keys) * np.float64(q.shape[-1]) ** -0.5
    scores = np.where(seen, scores, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        largest = np.where(seen.any(-1), scores.max(-1), 0)[..., None]
        weights = np.exp(scores - largest)
        total = weights.sum(-1, keepdims=True)
        out = np.nan_to_num(weights @ values / total)
        lse = (largest + np.log(total))[..., 0]
    return torch.from_numpy(out).to(q.dtype), torch.from_numpy(lse).to(q.dtype)


@wrong(says="only scores of -inf, and -inf minus -inf is nan")
def blind_queries_forgotten(q, k, v, visible):
    scores = scores_of(q, k, visible)
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@wrong(says="subtract the largest score first")
def exp_of_large_scores(q, k, v, visible):
    weights = scores_of(q, k, visible).exp()
    total = weights.sum(-1)
    return (weights @ v) / total.clamp(min=1e-300)[..., None], total.log()


@wrong(says="without the division of the scores by the root of D")
def not_scaled(q, k, v, visible):
    scores = (q @ k.mT).masked_fill(~visible, -INF)
    lse = scores.logsumexp(-1)
    return (scores - no_nan(lse)[..., None]).exp() @ v, lse


@wrong(says="attention to all keys: some are not visible")
def mask_forgotten(q, k, v, visible):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@wrong(says="the mask is the wrong way round")
def mask_upside_down(q, k, v, visible):
    scores = scores_of(q, k, ~visible)
    lse = scores.logsumexp(-1)
    return (scores - no_nan(lse)[..., None]).exp() @ v, lse


@wrong(says="exp(0) is 1")
def mask_by_product(q, k, v, visible):
    scores = q @ k.mT / math.sqrt(q.shape[-1]) * visible
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@wrong(says="the sum of the exponentials, without its logarithm")
def without_logarithm(q, k, v, visible):
    scores = scores_of(q, k, visible)
    return scores.softmax(-1).nan_to_num(0.0) @ v, scores.logsumexp(-1).exp()


@wrong(says="is not added again")
def largest_not_added(q, k, v, visible):
    scores = scores_of(q, k, visible)
    lse = scores.logsumexp(-1)
    return scores.softmax(-1).nan_to_num(0.0) @ v, lse - scores.amax(-1)


@wrong(says="2 tensors, (out, lse) are expected")
def only_the_output(q, k, v, visible):
    return scores_of(q, k, visible).softmax(-1).nan_to_num(0.0) @ v


@wrong(says="the argument `q` is not what it was")
def scaled_in_place(q, k, v, visible):
    q /= math.sqrt(q.shape[-1])
    scores = (q @ k.mT).masked_fill(~visible, -INF)
    lse = scores.logsumexp(-1)
    return (scores - no_nan(lse)[..., None]).exp() @ v, lse


@wrong(says="the dtype is wrong")
def in_double(q, k, v, visible):
    scores = scores_of(q.double(), k.double(), visible)
    lse = scores.logsumexp(-1)
    return (scores - no_nan(lse)[..., None]).exp() @ v.double(), lse


@wrong(says="the shape is wrong")
def lse_with_a_dimension_too_many(q, k, v, visible):
    scores = scores_of(q, k, visible)
    lse = scores.logsumexp(-1, keepdim=True)
    return (scores - no_nan(lse)).exp() @ v, lse
