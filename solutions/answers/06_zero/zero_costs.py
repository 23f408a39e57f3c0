"""Known answers to zero_costs."""

from collections import namedtuple
from fractions import Fraction

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong


@right
def zero_costs(stage, n):
    divided = {0: 0, 1: 12, 2: 14, 3: 16}[stage]
    return 16 - divided * (n - 1) / n, (2 + (stage == 3)) * (1 - 1 / n)


LIMITS = {0: 16, 1: 4, 2: 2, 3: 0}


def right_bytes(stage, n):
    return sum(part / n if stage > place else part for place, part in enumerate((12, 2, 2)))


def right_sent(stage, n):
    return (3 if stage == 3 else 2) * (n - 1) / n


@wrong(says="what is left with infinitely many ranks")
def the_limits(stage, n):
    return (LIMITS[stage] if n > 1 else 16), right_sent(stage, n)


@wrong(says="their sum does too: once, not twice")
def sixty_four_fold_on_eight(stage, n):
    return right_bytes(stage, n) / (n if stage == 3 else 1), right_sent(stage, n)


@wrong(says="mixed precision keeps an fp32 copy")
def no_fp32_copy(stage, n):
    parts = enumerate((8, 2, 2))
    return sum(part / n if stage > place else part for place, part in parts), right_sent(stage, n)


@wrong(says="the careless stage 1 sends")
def three_passes(stage, n):
    return right_bytes(stage, n), (3 if stage else 2) * (n - 1) / n


@wrong(says="stage 3 gathers the parameters twice")
def two_passes(stage, n):
    return right_bytes(stage, n), 2 * (n - 1) / n


@wrong(says="of every pass it sends (n-1)/n")
def own_part_sent_too(stage, n):
    return right_bytes(stage, n), 3 if stage == 3 else 2


@wrong(says="two numbers are expected")
def memory_alone(stage, n):
    return right_bytes(stage, n)


@right
def zero_costs_by_fractions(stage, n):
    held = sum(Fraction(size, n if stage >= since else 1) for size, since in _PARTS)
    return held, Fraction(3 if stage == 3 else 2) * (1 - Fraction(1, n))


_PARTS = ((12, 1), (2, 2), (2, 3))  # bytes, and the stage from which on they are shared


@right
def zero_costs_in_numpy(stage, n):
    parts = np.array([12.0, 2.0, 2.0])
    parts[:stage] /= n
    passes = np.array([2, 2, 2, 3])[stage]
    return np.array([parts.sum(), passes - passes / n])


@right
def zero_costs_as_named(stage, n):
    Costs = namedtuple("Costs", "held sent")
    match stage:
        case 0:
            held = 16.0
        case 1:
            held = 4 + 12 / n
        case 2:
            held = 2 + 14 / n
        case _:
            held = 16 / n
    return Costs(held, sent=(n - 1) * (2 + (stage > 2)) / n)


@right
def zero_costs_in_a_tensor(stage, n):
    share = torch.where(torch.arange(1, 4) <= stage, 1 / n, 1.0).double()
    share[share < 1] = 1 / n
    held = torch.tensor([12.0, 2.0, 2.0], dtype=torch.float64) @ share
    return [held, torch.tensor(2 + stage // 3).double() * (n - 1) / n]


@wrong(says="// leaves out what does not divide, and / is the division of numbers of any kind")
def whole_division(stage, n):
    parts = (12, 2, 2)
    held = sum(part // n if stage > place else part for place, part in enumerate(parts))
    return held, right_sent(stage, n)
