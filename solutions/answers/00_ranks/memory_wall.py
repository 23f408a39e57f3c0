"""Known answers to memory_wall."""

import math
from collections import namedtuple
from fractions import Fraction

import numpy

from course_lib.checks.known_answers import right, wrong


@right
def memory_wall(parameters, device_bytes):
    needed = parameters << 4
    return [parameters << 2, needed, -(-needed // device_bytes)]


Wall = namedtuple("Wall", "hold train devices")


@right
def wall_by_name_and_place(parameters, device_bytes):
    train = Fraction(16 * parameters)
    return Wall(numpy.int64(4 * parameters), train, math.ceil(train / device_bytes))


@right
def wall_as_an_array(parameters, device_bytes):
    train = 16 * parameters
    return numpy.array([4 * parameters, train, -(-train // device_bytes)])


@right
def wall_in_floats(parameters, device_bytes):
    train = 16.0 * parameters
    return [4.0 * parameters, train, float(math.ceil(train / device_bytes))]


@wrong(says="20 bytes are hold and train added up")
def wall_with_weights_twice(parameters, device_bytes):
    return 4 * parameters, 20 * parameters, math.ceil(20 * parameters / device_bytes)


@wrong(says="this is `train`: hold comes first")
def wall_turned_round(parameters, device_bytes):
    return 16 * parameters, 4 * parameters, math.ceil(16 * parameters / device_bytes)


@wrong(says="one is in GB here, and the other in GiB")
def wall_of_two_units(parameters, device_bytes):
    gib, gb = 16 * parameters / 2**30, device_bytes / 1e9
    return 4 * parameters, 16 * parameters, math.ceil(gib / gb)


@wrong(says="only the optimizer's 12 bytes")
def wall_of_the_optimizer(parameters, device_bytes):
    return 4 * parameters, 12 * parameters, math.ceil(12 * parameters / device_bytes)


@wrong(says="the optimizer's state is missing")
def wall_without_optimizer(parameters, device_bytes):
    return 4 * parameters, 4 * parameters, math.ceil(4 * parameters / device_bytes)


@wrong(says="round up, not down")
def wall_rounded_down(parameters, device_bytes):
    return 4 * parameters, 16 * parameters, 16 * parameters // device_bytes


@wrong(says="needs no extra device")
def wall_with_one_more(parameters, device_bytes):
    return 4 * parameters, 16 * parameters, 16 * parameters // device_bytes + 1


@wrong(says="devices come whole")
def wall_with_a_fraction(parameters, device_bytes):
    return 4 * parameters, 16 * parameters, 16 * parameters / device_bytes


@wrong(says="these devices only hold the weights")
def wall_for_the_weights(parameters, device_bytes):
    hold = 4 * parameters
    return hold, 16 * parameters, math.ceil(hold / device_bytes)


@wrong(says="this is the number of GB, and bytes are expected")
def wall_in_gigabytes(parameters, device_bytes):
    return 4 * parameters / 1e9, 16 * parameters / 1e9, math.ceil(16 * parameters / device_bytes)


@wrong(says="this is the number of GiB")
def wall_in_powers_of_two(parameters, device_bytes):
    return 4 * parameters / 2**30, 16 * parameters / 2**30, 35


@wrong(says="2 is what bfloat16 and float16 have")
def wall_in_half(parameters, device_bytes):
    return 2 * parameters, 16 * parameters, math.ceil(16 * parameters / device_bytes)


@wrong(says="hold is 4 bytes for each parameter, and nothing else")
def wall_of_gpt3(parameters, device_bytes):
    return 700_000_000_000, 2_800_000_000_000, 35


@wrong(says="you returned a dict")
def wall_by_name(parameters, device_bytes):
    return {"hold": 4 * parameters, "train": 16 * parameters, "devices": 35}


@right
def wall_in_whole_numbers(parameters, device_bytes):
    train = parameters * (2 + 2 + 4 + 4 + 4)
    devices, rest = divmod(train, device_bytes)
    return parameters << 2, train, devices + bool(rest)


@wrong(says="bytes are shared out, and not whole parameters")
def shares_out_whole_parameters(parameters, device_bytes):
    on_one = device_bytes // 16
    return 4 * parameters, 16 * parameters, math.ceil(parameters / on_one)
