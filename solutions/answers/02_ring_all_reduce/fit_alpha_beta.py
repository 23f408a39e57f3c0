"""Known answers to fit_alpha_beta."""

import torch
import torch.distributed.nn

from course_lib.checks.known_answers import right, wrong


@right
def fit_alpha_beta(sizes, times):
    """Normal equations of the relative errors."""
    rows = [(1 / t, s / t) for s, t in zip(sizes, times, strict=True)]
    aa, ab, bb = (sum(r[i] * r[j] for r in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(r[i] for r in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    return (a * bb - b * ab) / determinant, (aa * b - ab * a) / determinant


def least_squares(sizes, times, power):
    t = torch.tensor(times, dtype=torch.float64)
    s = torch.tensor(sizes, dtype=torch.float64)
    weight = t**-power
    rows = torch.stack([weight, s * weight], dim=1)
    return tuple(torch.linalg.lstsq(rows, (t * weight)[:, None]).solution.flatten().tolist())


@wrong(says="this is plain least squares")
def fit_plain(sizes, times):
    return least_squares(sizes, times, power=0)


@wrong(says="a relative error squared has 1/time^2")
def fit_half_weighted(sizes, times):
    return least_squares(sizes, times, power=0.5)


@wrong(says="the two are swapped")
def fit_swapped(sizes, times):
    return least_squares(sizes, times, power=1)[::-1]


@wrong(says="your beta is bytes per second")
def fit_bandwidth(sizes, times):
    alpha, beta = least_squares(sizes, times, power=1)
    return alpha, 1 / beta


@wrong(says="through two points only")
def fit_two_points(sizes, times):
    beta = (times[-1] - times[0]) / ((sizes[-1] - sizes[0]) or 1)
    return times[0] - beta * sizes[0], beta


@wrong(says="the line need not pass through zero")
def fit_without_latency(sizes, times):
    return 0.0, sum(times) / sum(sizes)


@wrong(says="two numbers are expected, (alpha, beta), and you returned nothing")
def fit_nothing(sizes, times):
    least_squares(sizes, times, power=1)


@wrong(says="a fast link, without noise")
def fit_hard_coded(sizes, times):
    return 1.0, 0.5
