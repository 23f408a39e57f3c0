"""Known answers to merge_partials."""

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong

INF = float("inf")


def finite(lse):
    return lse.masked_fill(lse == -INF, 0)


@right
def by_the_larger_one(out_a, lse_a, out_b, lse_b):
    most = finite(torch.maximum(lse_a, lse_b))
    a, b = (lse_a - most).exp(), (lse_b - most).exp()
    total = a + b
    share = (a / total.clamp(min=1e-30)).unsqueeze(-1)
    other = (b / total.clamp(min=1e-30)).unsqueeze(-1)
    return out_a * share + out_b * other, most + total.log()


@right
def by_sigmoid(out_a, lse_a, out_b, lse_b):
    difference = torch.where(lse_a == lse_b, 0.0, lse_a - lse_b)
    share = torch.sigmoid(difference)[..., None]
    return share * out_a + (1 - share) * out_b, torch.logaddexp(lse_a, lse_b)


@right
def by_a_softmax_of_two(out_a, lse_a, out_b, lse_b):
    lses = torch.stack([lse_a, lse_b])
    shares = lses.softmax(0).nan_to_num(0.0)
    out = torch.einsum("s...d,s...->...d", torch.stack([out_a, out_b]), shares)
    return [out, lses.logsumexp(0)]


@right
def with_numpys_logaddexp(out_a, lse_a, out_b, lse_b):
    lse = np.logaddexp(lse_a.numpy(), lse_b.numpy())
    finite = np.where(np.isneginf(lse), 0, lse)
    a, b = (np.exp(x.numpy() - finite)[..., None] for x in (lse_a, lse_b))
    return torch.from_numpy(out_a.numpy() * a + out_b.numpy() * b), torch.from_numpy(lse)


@right
def by_lerp(out_a, lse_a, out_b, lse_b):
    """A is moved towards B by B's share."""
    lse = torch.logaddexp(lse_a, lse_b)
    share = torch.where(lse_b == -INF, torch.zeros_like(lse), (lse_b - lse).exp())
    return torch.lerp(out_a, out_b, share.unsqueeze(-1)), lse


@wrong(says="only scores of -inf, and -inf minus -inf is nan")
def blind_on_both_sides(out_a, lse_a, out_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    a, b = (lse_a - lse).exp()[..., None], (lse_b - lse).exp()[..., None]
    return out_a * a + out_b * b, lse


@wrong(says="subtract the largest score first")
def exponentials_as_they_are(out_a, lse_a, out_b, lse_b):
    a, b = lse_a.exp()[..., None], lse_b.exp()[..., None]
    return (out_a * a + out_b * b) / (a + b), torch.logaddexp(lse_a, lse_b)


@wrong(says="the mean of the two")
def mean_of_the_two(out_a, lse_a, out_b, lse_b):
    return (out_a + out_b) / 2, torch.logaddexp(lse_a, lse_b)


@wrong(says="each has been divided by its own sum of exponentials")
def sum_of_the_two(out_a, lse_a, out_b, lse_b):
    return out_a + out_b, torch.logaddexp(lse_a, lse_b)


@wrong(says="A with B's weight and B with A's")
def weights_swapped(out_a, lse_a, out_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    a, b = ((each - finite(lse)).exp()[..., None] for each in (lse_a, lse_b))
    return out_a * b + out_b * a, lse


@wrong(says="still to be divided by the sum of both")
def not_divided(out_a, lse_a, out_b, lse_b):
    out = out_a * lse_a.exp()[..., None] + out_b * lse_b.exp()[..., None]
    return out, torch.logaddexp(lse_a, lse_b)


@wrong(says="lse is a logarithm, so its exp is the weight")
def weighted_by_lse(out_a, lse_a, out_b, lse_b):
    a, b = lse_a[..., None], lse_b[..., None]
    return (out_a * a + out_b * b) / (a + b), torch.logaddexp(lse_a, lse_b)


@wrong(says="the larger of the two")
def lse_of_the_larger(out_a, lse_a, out_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    a, b = ((each - finite(lse)).exp()[..., None] for each in (lse_a, lse_b))
    return out_a * a + out_b * b, torch.maximum(lse_a, lse_b)


@wrong(says="the logarithm of a product")
def lse_added(out_a, lse_a, out_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    a, b = ((each - finite(lse)).exp()[..., None] for each in (lse_a, lse_b))
    return out_a * a + out_b * b, lse_a + lse_b


@wrong(says="the argument `out_a` is not what it was")
def in_place_of_a(out_a, lse_a, out_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    a, b = ((each - finite(lse)).exp()[..., None] for each in (lse_a, lse_b))
    return out_a.mul_(a).add_(out_b * b), lse
