"""Known answers to choose_savings."""

import itertools
from collections import namedtuple
from fractions import Fraction

import numpy as np

from course_lib.checks.known_answers import right, wrong

RECOMPUTE = ("none", "selective", "full")
WAYS = [
    (zero, offload, recompute)
    for zero, offload, recompute in itertools.product(range(4), (False, True), RECOMPUTE)
    if zero >= 2 or not offload
]


def states(job, zero, offload, whole=True):
    n, layer = job["devices"], job["parameters"]
    parameters = 2 / n if zero == 3 else 2
    gradients = 2 / n if zero >= 2 else 2
    optimizer = 12 / n if zero >= 1 else 12
    each = parameters if offload else parameters + gradients + optimizer
    return layer * (job["layers"] * each + whole * 4 * max(0, zero - 1))


def activations(job, recompute):
    kept = job["activations"]
    return (job["layers"] - 1) * kept[recompute] + kept["none"]


def fastest(job, seconds, held, some=lambda way: True):
    fitting = [way for way in WAYS if held(*way) <= job["memory"] and some(way)]
    return min(fitting or WAYS, key=lambda way: seconds(*way))


def held_by(job):
    return lambda zero, offload, recompute: states(job, zero, offload) + activations(job, recompute)


@right
def choose_savings(job, seconds):
    best = None
    for way in WAYS:
        zero, offload, recompute = way
        if states(job, zero, offload) + activations(job, recompute) > job["memory"]:
            continue
        if best is None or seconds(*way) < seconds(*best):
            best = way
    return best


@right
def from_the_fastest_on(job, seconds):
    """Sorted by time first, and exact fractions; a list comes back."""
    n, layer = job["devices"], int(job["parameters"])
    for zero, offload, recompute in sorted(WAYS, key=lambda way: seconds(*way)):
        parts = [Fraction(2, n if zero == 3 else 1)]
        if not offload:
            parts += [Fraction(2, n if zero > 1 else 1), Fraction(12, n if zero else 1)]
        whole = {0: 0, 1: 0, 2: 4, 3: 8}[zero]
        need = layer * (job["layers"] * sum(parts) + whole)
        if need + activations(job, recompute) <= job["memory"]:
            return [zero, offload, recompute]
    return None


@right
def asks_for_everything_and_catches(job, seconds):
    """`seconds` refuses what is impossible."""
    found = {}
    for way in itertools.product((3, 2, 1, 0), (True, False), job["activations"]):
        try:
            found[way] = seconds(*way)
        except ValueError:
            continue
    held = held_by(job)
    return min((way for way in found if held(*way) <= job["memory"]), key=found.get)


@right
def a_named_tuple(job, seconds):
    """The stage as a numpy number, and keywords for `seconds`."""
    Way = namedtuple("Way", "zero offload recompute")
    held = held_by(job)
    every = [Way(np.int64(zero), offload, recompute) for zero, offload, recompute in WAYS]
    return min(
        (way for way in every if held(*way) <= job["memory"]),
        key=lambda way: seconds(**way._asdict()),
    )


@right
def as_arrays(job, seconds):
    need = np.array([held_by(job)(*way) for way in WAYS], dtype=float)
    times = np.array([seconds(*way) for way in WAYS])
    return WAYS[int(np.where(need <= job["memory"], times, np.inf).argmin())]


@right
def stage_3_unless_another_is_faster(job, seconds):
    """Of equal times the one that takes least memory."""
    held = held_by(job)
    fitting = [way for way in WAYS if held(*way) <= job["memory"]]
    return min(fitting, key=lambda way: (round(seconds(*way), 3), held(*way)))


@wrong(says="it must also fit into memory")
def memory_forgotten(job, seconds):
    return fastest(job, seconds, lambda *way: 0)


@wrong(says="the states are left out")
def states_forgotten(job, seconds):
    return fastest(job, seconds, lambda zero, offload, recompute: activations(job, recompute))


@wrong(says="the activations are left out")
def activations_forgotten(job, seconds):
    return fastest(job, seconds, lambda zero, offload, recompute: states(job, zero, offload))


@wrong(says="only stage 3 divides all 16 bytes")
def every_stage_divides_all(job, seconds):
    def held(zero, offload, recompute):
        each = 2 if offload else 16
        shared = each / (job["devices"] if zero and not (offload and zero < 3) else 1)
        whole = 4 * job["parameters"] * max(0, zero - 1)
        return shared * job["layers"] * job["parameters"] + whole + activations(job, recompute)

    return fastest(job, seconds, held)


@wrong(says="`activations` is for one device's own sequences")
def activations_divided_by_the_devices(job, seconds):
    def held(zero, offload, recompute):
        return states(job, zero, offload) + activations(job, recompute) / job["devices"]

    return fastest(job, seconds, held)


@wrong(says="the layer whose backward runs has all its activations")
def the_layer_at_work_forgotten(job, seconds):
    def held(zero, offload, recompute):
        return states(job, zero, offload) + job["layers"] * job["activations"][recompute]

    return fastest(job, seconds, held)


@wrong(says="two layers' gradients are whole")
def nothing_whole(job, seconds):
    def held(zero, offload, recompute):
        return states(job, zero, offload, whole=False) + activations(job, recompute)

    return fastest(job, seconds, held)


@wrong(says="at stage 3 two layers' parameters are whole")
def gathered_layers_forgotten(job, seconds):
    def held(zero, offload, recompute):
        gathered = 4 * job["parameters"] if zero == 3 else 0
        return states(job, zero, offload) - gathered + activations(job, recompute)

    return fastest(job, seconds, held)


@wrong(says="offload takes away gradients and optimizer, and the parameters stay")
def parameters_offloaded_in_parts(job, seconds):
    def held(zero, offload, recompute):
        both = 4 * job["parameters"] if zero == 2 and offload else 0
        stage = 3 if offload else zero
        return states(job, stage, offload) - both + activations(job, recompute)

    return fastest(job, seconds, held)


@wrong(says="it is the best with zero = 3, and another stage is faster")
def always_stage_3(job, seconds):
    return fastest(job, seconds, held_by(job), lambda way: way[0] == 3)


@wrong(says="it is the best with recompute = 'full'")
def always_everything_recomputed(job, seconds):
    return fastest(job, seconds, held_by(job), lambda way: way[2] == "full")


@wrong(says="it is the best with offload = False")
def offloaded_only_if_nothing_else_fits(job, seconds):
    held = held_by(job)
    without = [way for way in WAYS if not way[1] and held(*way) <= job["memory"]]
    return min(without, key=lambda way: seconds(*way), default=choose_savings(job, seconds))


@wrong(says="offload is for zero = 2 and 3")
def plain_offload(job, seconds):
    _, offload, recompute = choose_savings(job, seconds)
    return 0, offload, recompute


@wrong(says="a stage of ZeRO, whether to offload, and what to recompute")
def without_offload(job, seconds):
    return choose_savings(job, seconds)[::2]


@wrong(says="must be one of 'none', 'selective', 'full'")
def recompute_as_a_bool(job, seconds):
    zero, offload, recompute = choose_savings(job, seconds)
    return zero, offload, recompute != "none"


@wrong(says="must be 0 (all on every device), 1, 2 or 3")
def a_stage_by_name(job, seconds):
    zero, offload, recompute = choose_savings(job, seconds)
    return f"ZeRO-{zero}", offload, recompute


@wrong(says="two layers' gradients are whole")
def nothing_whole_on_a_single_device(job, seconds):
    alone = job["devices"] == 1
    fitting = [
        (zero, offload, recompute)
        for zero, offload, recompute in WAYS
        if states(job, zero, offload, whole=not alone) + activations(job, recompute)
        <= job["memory"]
    ]
    return min(fitting, key=lambda way: seconds(*way))
