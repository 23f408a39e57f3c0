"""Known answers to bubble_fractions."""

from fractions import Fraction

import torch

from course_lib.checks.known_answers import right, wrong


@right
def bubble_fractions(p, m):
    idle = p - 1
    return [idle / (idle + m), torch.tensor(idle / m, dtype=torch.float64)]


@wrong(says="the two are swapped")
def bubbles_swapped(p, m):
    return (p - 1) / m, (p - 1) / (m + p - 1)


@wrong(says="both are shares of the working time")
def one_convention_for_both(p, m):
    return (p - 1) / m, (p - 1) / m


@wrong(says="both are shares of all the time")
def the_other_for_both(p, m):
    return (p - 1) / (m + p - 1), (p - 1) / (m + p - 1)


@wrong(says="this is the naive pipeline's")
def microbatches_forgotten(p, m):
    return (p - 1) / p, float(p - 1)


@wrong(says="not p of them")
def one_stage_too_many(p, m):
    return p / (m + p), p / m


@wrong(says="these are per cent")
def bubbles_in_per_cent(p, m):
    return 100 * (p - 1) / (m + p - 1), 100 * (p - 1) / m


@wrong(says="this is the busy share")
def busy_for_idle(p, m):
    return m / (m + p - 1), 1 - (p - 1) / m


@wrong(says="two numbers are expected")
def one_number_only(p, m):
    return (p - 1) / (m + p - 1)


@right
def from_the_whole(p, m):
    steps = m + p - 1
    return 1 - m / steps, steps / m - 1


@right
def as_a_tensor(p, m):
    return torch.tensor([p - 1, p - 1], dtype=torch.float64) / torch.tensor([m + p - 1, m])


@right
def by_counting(p, m):
    """Lays down the boxes of the last stage, step by step."""
    last = [None] * (p - 1) + list(range(m))
    idle = last.count(None)
    return [idle / len(last), idle / (len(last) - idle)]


@wrong(says="a stage idles p - 1 steps, not 2(p-1)")
def idle_at_both_ends(p, m):
    return 2 * (p - 1) / (m + 2 * (p - 1)), 2 * (p - 1) / m


@wrong(says="the first number is right")
def never_more_than_one(p, m):
    return (p - 1) / (m + p - 1), min(1, (p - 1) / m)


@wrong(says="the stages work side by side")
def steps_one_after_the_other(p, m):
    return (p - 1) / (m * p), (p - 1) / m


@right
def as_fractions(p, m):
    return Fraction(p - 1, m + p - 1), Fraction(p - 1, m)
