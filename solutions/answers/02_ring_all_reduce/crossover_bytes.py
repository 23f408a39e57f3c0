"""Known answers to crossover_bytes."""

import math

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


@wrong(says="alpha and beta have changed places")
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
