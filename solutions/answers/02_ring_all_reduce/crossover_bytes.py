"""Known answers to crossover_bytes."""

import math
from fractions import Fraction

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong


@right
def crossover_bytes(n, alpha, beta):
    if n == 1:
        return 0.0
    levels = math.ceil(math.log2(n))
    return alpha / beta * (n - 1 - levels) / (levels - 1 + 1 / n)


def crossing(n, alpha, beta, levels, share):
    return (2 * (n - 1) - 2 * levels) * alpha / ((2 * levels - 2 * share) * beta)


@wrong(says="ZeroDivisionError")
def crossover_without_the_case_of_one(n, alpha, beta):
    return crossing(n, alpha, beta, math.ceil(math.log2(n)), (n - 1) / n)


@wrong(says="at 6667 bytes the ring takes")
def crossover_with_whole_tensors(n, alpha, beta):
    return crossing(n, alpha, beta, math.ceil(math.log2(n)), 0.5)


@wrong(says="it is never slower, at any size")
def crossover_with_rounded_down_levels(n, alpha, beta):
    return crossing(n, alpha, beta, math.floor(math.log2(n)), (n - 1) / n) if n > 2 else 0.0


@wrong(says="this is a time in seconds")
def crossover_in_seconds(n, alpha, beta):
    return crossing(n, alpha, beta, math.ceil(math.log2(n)), (n - 1) / n) * beta


@wrong(says="alpha and beta are swapped")
def crossover_upside_down(n, alpha, beta):
    return crossing(n, beta, alpha, math.ceil(math.log2(n)), (n - 1) / n)


@wrong(says="a size cannot be negative")
def crossover_negative(n, alpha, beta):
    return -crossing(n, alpha, beta, math.ceil(math.log2(n)), (n - 1) / n)


@wrong(says="one number is expected, and you returned nothing")
def crossover_printed(n, alpha, beta):
    print(n, alpha, beta)


@wrong(says="1, 2 and 3 ranks")
def crossover_hard_coded(n, alpha, beta):
    return 8000.0


@right
def crossover_by_fractions(n, alpha, beta):
    levels = len(bin(n - 1)) - 2 if n > 1 else 0
    messages, tensors = n - 1 - levels, levels - Fraction(n - 1, n)
    return float(messages * Fraction(alpha) / (tensors * Fraction(beta))) if messages else 0.0


@right
def crossover_in_numpy(n, alpha, beta):
    depth = np.ceil(np.log2(n))
    ring, tree = np.array([n - 1, (n - 1) / n]) * 2, np.array([depth, depth]) * 2
    more, fewer = ring[0] - tree[0], tree[1] - ring[1]
    return np.float64(more * alpha / (fewer * beta)) if more > 0 else np.float64(0)


@right
def crossover_by_halving(n, alpha, beta):
    """Where the difference of the two times changes its sign."""
    levels = 0
    while 2**levels < n:
        levels += 1

    def ring_is_slower(size):
        ring = 2 * (n - 1) * (alpha + beta * size / n)
        return ring > 2 * levels * (alpha + beta * size)

    low, high = 0.0, 1.0
    if not ring_is_slower(low):
        return 0.0
    while ring_is_slower(high):
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if ring_is_slower(middle) else (low, middle)
    return high


@right
def crossover_as_a_tensor(n, alpha, beta):
    if n <= 3:
        return 0
    levels = torch.tensor(n - 1).item().bit_length()
    matrix = torch.tensor([[2 * levels * beta, -1], [2 * (n - 1) / n * beta, -1]]).double()
    right_side = torch.tensor([-2 * levels * alpha, -2 * (n - 1) * alpha]).double()
    return torch.linalg.solve(matrix, right_side)[0]
