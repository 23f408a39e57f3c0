"""Known answers to layer_traffic."""

from fractions import Fraction

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong


@right
def layer_traffic(b, s, h, t, element_size):
    tensor = b * s * h * element_size
    return sum(2 * (t - 1) * tensor / t for _ in ("g", "g", "f", "f"))


@wrong(says="(t-1)/t is missing")
def as_if_sent_to_itself(b, s, h, t, element_size):
    return 8 * b * s * h * element_size


@wrong(says="count forward and backward")
def forward_alone(b, s, h, t, element_size):
    return 4 * b * s * h * (t - 1) / t * element_size


@wrong(says="these are elements")
def in_elements(b, s, h, t, element_size):
    return 8 * b * s * h * (t - 1) / t


@wrong(says="a ring sends 2(t-1)/t of its tensor")
def four_tensors(b, s, h, t, element_size):
    return 4 * b * s * h * element_size


@wrong(says="this asks for what each one sends")
def of_all_ranks(b, s, h, t, element_size):
    return 8 * b * s * h * (t - 1) * element_size


@wrong(says="not 1/t of it")
def of_a_part(b, s, h, t, element_size):
    return 8 * b * s * h * (t - 1) / t**2 * element_size


@wrong(says="this is rounded to whole bytes")
def in_whole_numbers(b, s, h, t, element_size):
    return 8 * b * s * h * element_size * (t - 1) // t


@right
def one_by_one(b, s, h, t, element_size):
    """A tensor of one element is a number as well."""
    total = torch.zeros((), dtype=torch.float64)
    for _ in range(4):
        total += 2 * b * s * h * element_size - 2 * b * s * h * element_size / t
    return total


@wrong(says="`//` rounds down, and t need not divide h")
def parts_of_the_width(b, s, h, t, element_size):
    return 8 * (t - 1) * b * s * (h // t) * element_size


@wrong(says="t need not divide b s h")
def parts_of_the_whole(b, s, h, t, element_size):
    return 8 * (t - 1) * (b * s * h // t) * element_size


@wrong(says="this is rounded to whole bytes")
def as_an_int(b, s, h, t, element_size):
    return int(8 * (t - 1) / t * b * s * h * element_size)


@wrong(says="and a ring sends 2(t-1)/t of a tensor, not (t-1)/t")
def the_rings_two_forgotten(b, s, h, t, element_size):
    return 4 * (t - 1) / t * b * s * h * element_size


@wrong(says="one number is expected: this is a str")
def with_its_unit(b, s, h, t, element_size):
    return f"{8 * b * s * h * (t - 1) / t * element_size:.0f} bytes"


@right
def as_a_fraction(b, s, h, t, element_size):
    return Fraction(t - 1, t) * 8 * b * s * h * element_size


@right
def chunk_by_chunk(b, s, h, t, element_size):
    """A ring sends a t-th of the tensor in each of its 2 (t - 1) steps."""
    chunk = np.float64(b * s * h * element_size) / t
    return np.full((4, 2 * (t - 1)), chunk).sum()
