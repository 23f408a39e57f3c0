"""Known answers to tokens_to_hide."""

import math
from fractions import Fraction

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong


@right
def tokens_to_hide(volume, devices, flops, bandwidth):
    return flops * volume * (1 - 1 / devices) / (3 * bandwidth)


@wrong(says="this is upside down")
def bandwidth_over_flops(volume, devices, flops, bandwidth):
    return bandwidth / flops / volume


@wrong(says="this counts one")
def one_byte_a_parameter(volume, devices, flops, bandwidth):
    return volume * (devices - 1) / devices / bandwidth * flops / 6


@wrong(says="a ring sends (n-1)/n of it")
def sends_all_of_it(volume, devices, flops, bandwidth):
    return volume * 2 / bandwidth * flops / 6


@wrong(says="forward is 2 operations")
def forward_alone(volume, devices, flops, bandwidth):
    return volume * (devices - 1) / devices * 2 / bandwidth * flops / 2


@wrong(says="it is left out here")
def sends_once(volume, devices, flops, bandwidth):
    return (devices - 1) / devices * 2 / bandwidth * flops / 6


@wrong(says="one device is expected")
def tokens_of_all_devices(volume, devices, flops, bandwidth):
    return volume * (devices - 1) * 2 / bandwidth * flops / 6


@right
def by_fractions(volume, devices, flops, bandwidth):
    sent = Fraction(2 * volume * (devices - 1), devices) / Fraction(bandwidth)
    return sent * Fraction(flops) / 6


@right
def in_a_tensor(volume, devices, flops, bandwidth):
    sent = torch.tensor([2 * volume * (devices - 1) / devices], dtype=torch.float64)
    return sent / bandwidth / (6 / flops)


@right
def in_numpy(volume, devices, flops, bandwidth):
    seconds = np.float64(2 * volume) * (1 - np.reciprocal(float(devices))) / bandwidth
    return np.multiply(seconds, flops / 6)


@right
def by_halving(volume, devices, flops, bandwidth):
    """Where the two times cross."""
    sending, low, high = volume * (devices - 1) / devices * 2 / bandwidth, 0.0, 1e18
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if 6 * middle / flops < sending else (low, middle)
    return high


@wrong(says="this takes 2 for it, whatever it is")
def volume_is_two_or_three(volume, devices, flops, bandwidth):
    passes = 3 if volume == 3 else 2
    return passes * (devices - 1) / devices * 2 / bandwidth * flops / 6


@right
def whole_tokens(volume, devices, flops, bandwidth):
    return math.ceil(volume * (devices - 1) / devices * 2 * flops / 6 / bandwidth)
