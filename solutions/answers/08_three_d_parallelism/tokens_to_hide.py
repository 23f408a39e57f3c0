"""Known answers to tokens_to_hide."""

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
