"""Known answers to bytes_per_device."""

import math
from fractions import Fraction

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong


@right
def bytes_per_device(parameters, sizes, zero):
    shared = [12, 2, 2][:zero]
    whole = [12, 2, 2][zero:]
    own = parameters / sizes["tensor"] / sizes["pipeline"]
    return own * (sum(shared) / sizes["data"] + sum(whole))


def states(own, data, zero):
    weights = 2 / (data if zero >= 3 else 1)
    gradients = 2 / (data if zero >= 2 else 1)
    return own * (weights + gradients + 12 / (data if zero >= 1 else 1))


@wrong(says="the tensor and pipeline axes divide the parameters")
def one_device_has_the_model(parameters, sizes, zero):
    return states(parameters, sizes["data"], zero)


@wrong(says="ZeRO divides along the data axis, not over all devices")
def zero_over_the_world(parameters, sizes, zero):
    own = parameters / (sizes["tensor"] * sizes["pipeline"])
    return states(own, math.prod(sizes.values()), zero)


@wrong(says="without it, each replica has everything")
def everything_divides(parameters, sizes, zero):
    return 16 * parameters / math.prod(sizes.values())


@wrong(says="the pipeline axis divides the parameters too")
def stages_hold_all_layers(parameters, sizes, zero):
    return states(parameters / sizes["tensor"], sizes["data"], zero)


@wrong(says="shards one thing less than this does")
def one_stage_too_far(parameters, sizes, zero):
    own = parameters / (sizes["tensor"] * sizes["pipeline"])
    return states(own, sizes["data"], zero + 1)


@wrong(says="gradients and optimizer state have to be held as well")
def weights_alone(parameters, sizes, zero):
    return 4 * parameters / (sizes["tensor"] * sizes["pipeline"])


@right
def bytes_per_device_by_fractions(parameters, sizes, zero):
    shares = [1 + (sizes["data"] - 1) * (zero >= stage) for stage in (3, 2, 1)]
    per_parameter = sum(Fraction(n, share) for n, share in zip((2, 2, 12), shares, strict=True))
    return Fraction(parameters) * per_parameter / sizes["tensor"] / sizes["pipeline"]


@right
def bytes_per_device_in_numpy(parameters, sizes, zero):
    parts = np.array([12, 2, 2], dtype=np.float64)
    parts[:zero] /= sizes["data"]
    return parts.sum() * parameters / np.prod([sizes["tensor"], sizes["pipeline"]])


@wrong(says="ask zero >= 1, not zero == 1")
def only_what_is_new_in_a_stage(parameters, sizes, zero):
    d = sizes["data"]
    weights = 2 / d if zero == 3 else 2
    gradients = 2 / d if zero == 2 else 2
    optimizer = 12 / d if zero == 1 else 12
    return parameters / (sizes["tensor"] * sizes["pipeline"]) * (weights + gradients + optimizer)


@right
def bytes_per_device_by_table(parameters, sizes, zero):
    d = sizes["data"]
    per_parameter = (16, 4 + 12 / d, 2 + 14 / d, 16 / d)[zero]
    return per_parameter * parameters / sizes["tensor"] / sizes["pipeline"]


@right
def bytes_per_device_in_a_tensor(parameters, sizes, zero):
    nbytes = torch.tensor([12.0, 2.0, 2.0], dtype=torch.float64)
    share = torch.where(torch.arange(3) < zero, sizes["data"], 1)
    return (nbytes / share).sum() * parameters / (sizes["tensor"] * sizes["pipeline"])


@wrong(says="take them by name, not by place")
def axes_in_the_order_of_the_picture(parameters, sizes, zero):
    pipeline, data, tensor = sizes.values()
    return states(parameters / (pipeline * tensor), data, zero)
