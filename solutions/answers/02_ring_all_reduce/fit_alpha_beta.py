"""Known answers to fit_alpha_beta."""

import math
import operator
from collections import namedtuple
from fractions import Fraction

import numpy as np
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


@right
def fit_by_numpy(sizes, times):
    t = np.array(times)
    matrix = np.stack([np.ones(len(t)), np.array(sizes, dtype=float)], axis=1) / t[:, None]
    return np.linalg.lstsq(matrix, np.ones(len(t)), rcond=None)[0]


@right
def fit_by_weights(sizes, times):
    """Weighted least squares with the weights 1 / T^2, about weighted means."""
    weights = [t**-2 for t in times]
    total = math.fsum(weights)
    size = math.fsum(w * s for w, s in zip(weights, sizes, strict=True)) / total
    time = math.fsum(w * t for w, t in zip(weights, times, strict=True)) / total
    triples = list(zip(weights, sizes, times, strict=True))
    above = math.fsum(w * (s - size) * (t - time) for w, s, t in triples)
    beta = above / math.fsum(w * (s - size) ** 2 for w, s, _ in triples)
    return [time - beta * size, beta]


@right
def fit_by_fractions(sizes, times):
    t = [Fraction(time) for time in times]
    a, b = [1 / x for x in t], [Fraction(size) / x for size, x in zip(sizes, t, strict=True)]
    aa, bb = sum(x * x for x in a), sum(y * y for y in b)
    ab = sum(map(operator.mul, a, b))
    below = aa * bb - ab**2
    Link = namedtuple("Link", "alpha beta")
    return Link((sum(a) * bb - sum(b) * ab) / below, (sum(b) * aa - sum(a) * ab) / below)


@right
def fit_by_a_solver(sizes, times):
    rows = torch.stack([1 / torch.tensor(times).double(), torch.tensor(sizes).double()], 1)
    rows[:, 1] *= rows[:, 0]
    alpha, beta = torch.linalg.solve(rows.T @ rows, rows.sum(0))
    return alpha, beta
