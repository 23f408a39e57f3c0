"""Known answers to bytes_per_device."""

import math

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
