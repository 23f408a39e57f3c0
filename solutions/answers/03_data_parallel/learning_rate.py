"""Known answers to learning_rate."""

from fractions import Fraction

import numpy
import torch

from course_lib.checks.known_answers import right, wrong


@right
def learning_rate(step, base_rate, base_batch, batch, warmup_steps):
    k = batch / base_batch
    share = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    return base_rate * (1 + (k - 1) * share)


@right
def learning_rate_in_fractions(step, base_rate, base_batch, batch, warmup_steps):
    rate, full = Fraction(base_rate), Fraction(base_rate) * batch / base_batch
    return full if step >= warmup_steps else rate + (full - rate) * Fraction(step, warmup_steps)


@right
def learning_rate_by_interpolation(step, base_rate, base_batch, batch, warmup_steps):
    full = base_rate * batch / base_batch
    points = ([0, warmup_steps], [base_rate, full]) if warmup_steps else ([0], [full])
    return numpy.interp(step, *points)


@wrong(says="the rate stays as it was")
def rate_unchanged(step, base_rate, base_batch, batch, warmup_steps):
    return base_rate


@wrong(says="there is no warm-up")
def no_warm_up(step, base_rate, base_batch, batch, warmup_steps):
    return base_rate * batch / base_batch


def ramp(step, start, full, warmup_steps):
    return full if step >= warmup_steps else start + (full - start) * step / warmup_steps


@wrong(says="the warm-up begins at zero")
def warm_up_from_zero(step, base_rate, base_batch, batch, warmup_steps):
    return ramp(step, 0.0, base_rate * batch / base_batch, warmup_steps)


@wrong(says="this is the square root of the ratio")
def square_root_scaling(step, base_rate, base_batch, batch, warmup_steps):
    return ramp(step, base_rate, base_rate * (batch / base_batch) ** 0.5, warmup_steps)


@wrong(says="the rate jumps")
def all_at_once(step, base_rate, base_batch, batch, warmup_steps):
    return base_rate * (batch / base_batch if step >= warmup_steps else 1)


@wrong(says="the rate rises on after the warm-up")
def ever_rising(step, base_rate, base_batch, batch, warmup_steps):
    full = base_rate * batch / base_batch
    return base_rate + (full - base_rate) * step / max(1, warmup_steps)


@wrong(says="the ratio is upside down")
def ratio_turned_round(step, base_rate, base_batch, batch, warmup_steps):
    return ramp(step, base_rate, base_rate * base_batch / batch, warmup_steps)


@wrong(says="the full rate comes one step early")
def one_step_early(step, base_rate, base_batch, batch, warmup_steps):
    return ramp(step, base_rate, base_rate * batch / base_batch, max(1, warmup_steps - 1))


@wrong(says="without warm-up steps the full rate holds from step 0")
def divides_by_no_steps(step, base_rate, base_batch, batch, warmup_steps):
    full = base_rate * batch / base_batch
    return base_rate + (full - base_rate) * min(1.0, step / warmup_steps)


@right
def learning_rate_by_a_factor(step, base_rate, base_batch, batch, warmup_steps):
    share = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    return base_rate * (1 + (batch / base_batch - 1) * share)


@right
def learning_rate_of_a_line(step, base_rate, base_batch, batch, warmup_steps):
    """The line as torch draws it."""
    ends = [base_rate, base_rate * batch / base_batch]
    line = torch.linspace(*ends, warmup_steps + 1, dtype=torch.float64)
    return line[min(step, warmup_steps)] if warmup_steps else ends[1]


@wrong(says="// leaves out what does not divide")
def whole_multiples_only(step, base_rate, base_batch, batch, warmup_steps):
    full = base_rate * (batch // base_batch)
    if step >= warmup_steps:
        return full
    return base_rate + (full - base_rate) * step / warmup_steps


@wrong(says="the rate stays as it was")
def never_below_the_base(step, base_rate, base_batch, batch, warmup_steps):
    full = base_rate * max(1, batch / base_batch)
    if step >= warmup_steps:
        return full
    return base_rate + (full - base_rate) * step / warmup_steps
