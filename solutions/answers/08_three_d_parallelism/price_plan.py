"""Known answers to price_plan."""

from collections import namedtuple

import numpy as np

from course_lib.checks.known_answers import right, wrong


def _states(model, way, adam=12):
    d = way["data"]
    own = model["parameters"] / (way["tensor"] * way["pipeline"])
    weights = 2 / (d if way["zero"] >= 3 else 1)
    gradients = 2 / (d if way["zero"] >= 2 else 1)
    return own * (weights + gradients + adam / (d if way["zero"] >= 1 else 1))


def _activations(model, way, flying=None):
    p, t = way["pipeline"], way["tensor"]
    layer = way["micro_batch"] * model["seq"] * model["hidden"] * 34 / t
    if way["recompute"]:
        layer = way["micro_batch"] * model["seq"] * model["hidden"] * 2
    return layer * model["layers"] / p * (flying or min(p, way["microbatches"]))


def _pass(model, cluster, way, operations=(6, 8), reduces=(4, 6)):
    """Seconds of computing and of all-reducing for one microbatch."""
    p, t, again = way["pipeline"], way["tensor"], way["recompute"]
    tokens = way["micro_batch"] * model["seq"]
    own = model["parameters"] / (t * p)
    compute = operations[again] * own * tokens / cluster["flops"]
    message = 2 * tokens * model["hidden"]
    sent = 2 * (t - 1) / t * message / cluster["inside"]
    return compute, reduces[again] * model["layers"] / p * sent


def _ring(model, cluster, way):
    d, t = way["data"], way["tensor"]
    bandwidth = cluster["inside"]
    if d * t > cluster["per_node"]:
        each = max(1, cluster["per_node"] // t)
        bandwidth = cluster["between"] * min(cluster["rings"], each)
    return (d - 1) / d * 2 * model["parameters"] / (t * way["pipeline"]) / bandwidth


def _data(model, cluster, way, compute):
    ring = _ring(model, cluster, way)
    if way["zero"] == 3:
        return way["microbatches"] * (ring + max(0, 2 * ring - compute))
    return 2 * ring


@right
def price_plan(model, cluster, way):
    compute, talk = _pass(model, cluster, way)
    passes = way["microbatches"] + way["pipeline"] - 1
    seconds = passes * (compute + talk) + _data(model, cluster, way, compute)
    return _states(model, way) + _activations(model, way), seconds


@right
def with_logits_and_gathered_layers(model, cluster, way):
    """More exact than asked: attention's scores, the logits, and all that a recomputation needs."""
    tokens = way["micro_batch"] * model["seq"]
    compute, talk = _pass(model, cluster, way)
    compute *= 1 + model["seq"] / (6 * model["hidden"])
    passes = way["microbatches"] + way["pipeline"] - 1
    seconds = passes * (compute + talk) + _data(model, cluster, way, compute)
    nbytes = _states(model, way) + _activations(model, way)
    nbytes += 4 * tokens * (model["hidden"] + model["vocab"]) / way["tensor"]
    if way["recompute"]:
        nbytes += 34 * tokens * model["hidden"] / way["tensor"]
    return nbytes, seconds


@wrong(says="activations are left out")
def states_only(model, cluster, way):
    return _states(model, way), price_plan(model, cluster, way)[1]


@wrong(says="Adam's 12 bytes")
def no_adam(model, cluster, way):
    nbytes = _states(model, way, adam=0) + _activations(model, way)
    return nbytes, price_plan(model, cluster, way)[1]


@wrong(says="at most p microbatches in flight")
def all_microbatches_in_flight(model, cluster, way):
    nbytes = _states(model, way) + _activations(model, way, flying=way["microbatches"])
    return nbytes, price_plan(model, cluster, way)[1]


@wrong(says="ZeRO shares states")
def no_sharding(model, cluster, way):
    nbytes = _states(model, {**way, "zero": 0}) + _activations(model, way)
    return nbytes, price_plan(model, cluster, way)[1]


@wrong(says="divide the parameters")
def undivided(model, cluster, way):
    whole = _states(model, {**way, "tensor": 1, "pipeline": 1})
    return whole + _activations(model, way), price_plan(model, cluster, way)[1]


@wrong(says="the bubble is left out")
def no_bubble(model, cluster, way):
    compute, talk = _pass(model, cluster, way)
    seconds = way["microbatches"] * (compute + talk) + _data(model, cluster, way, compute)
    return price_plan(model, cluster, way)[0], seconds


@wrong(says="all-reduces are left out")
def no_tensor_traffic(model, cluster, way):
    compute, _ = _pass(model, cluster, way)
    passes = way["microbatches"] + way["pipeline"] - 1
    seconds = passes * compute + _data(model, cluster, way, compute)
    return price_plan(model, cluster, way)[0], seconds


@wrong(says="what data parallelism sends")
def no_data_traffic(model, cluster, way):
    compute, talk = _pass(model, cluster, way)
    passes = way["microbatches"] + way["pipeline"] - 1
    return price_plan(model, cluster, way)[0], passes * (compute + talk)


@wrong(says="keeps only its input")
def keeps_what_it_recomputes(model, cluster, way):
    nbytes = _states(model, way) + _activations(model, {**way, "recompute": False})
    return nbytes, price_plan(model, cluster, way)[1]


@wrong(says="ZeRO-3 sends more")
def zero_3_for_nothing(model, cluster, way):
    compute, talk = _pass(model, cluster, way)
    passes = way["microbatches"] + way["pipeline"] - 1
    seconds = passes * (compute + talk) + 2 * _ring(model, cluster, way)
    return price_plan(model, cluster, way)[0], seconds


@wrong(says="with every microbatch")
def zero_3_once_a_step(model, cluster, way):
    compute, talk = _pass(model, cluster, way)
    passes = way["microbatches"] + way["pipeline"] - 1
    volume = 3 if way["zero"] == 3 else 2
    seconds = passes * (compute + talk) + volume * _ring(model, cluster, way)
    return price_plan(model, cluster, way)[0], seconds


def _with(model, cluster, way, data):
    """The right answer with other seconds for data parallelism."""
    compute, talk = _pass(model, cluster, way)
    passes = way["microbatches"] + way["pipeline"] - 1
    return price_plan(model, cluster, way)[0], passes * (compute + talk) + data


@wrong(says="gradients that are reduced hide behind nothing")
def hides_gradients(model, cluster, way):
    ring, compute = _ring(model, cluster, way), _pass(model, cluster, way)[0]
    if way["zero"] == 3:
        return _with(model, cluster, way, way["microbatches"] * max(0, 3 * ring - compute))
    return _with(model, cluster, way, 2 * ring)


@wrong(says="hides behind the computation")
def hides_nothing(model, cluster, way):
    ring = _ring(model, cluster, way)
    times = 3 * way["microbatches"] if way["zero"] == 3 else 2
    return _with(model, cluster, way, times * ring)


@wrong(says="has as many adapters")
def one_adapter_for_each_group(model, cluster, way):
    return price_plan(model, {**cluster, "rings": 1}, way)


@wrong(says="8 operations")
def recomputes_for_nothing(model, cluster, way):
    compute, talk = _pass(model, cluster, way, operations=(6, 6), reduces=(4, 4))
    passes = way["microbatches"] + way["pipeline"] - 1
    seconds = passes * (compute + talk) + _data(model, cluster, way, compute)
    return price_plan(model, cluster, way)[0], seconds


@wrong(says="two numbers above 0")
def seconds_only(model, cluster, way):
    return price_plan(model, cluster, way)[1]


@wrong(says="two numbers above 0")
def nothing_takes_time(model, cluster, way):
    return price_plan(model, cluster, way)[0], 0.0


@wrong(says="add up what lessons")
def prefers_data_parallelism(model, cluster, way):
    return price_plan(model, cluster, way)[0], 1 / way["data"]


@right
def price_plan_step_by_step(model, cluster, way):
    """Everything counted one after the other, as a simulation would."""
    t, p, d = way["tensor"], way["pipeline"], way["data"]
    tokens, h = way["micro_batch"] * model["seq"], model["hidden"]
    own, layers, again = model["parameters"] / t / p, model["layers"] / p, way["recompute"]

    held = 0.0
    for nbytes, since in ((2, 3), (2, 2), (12, 1)):
        held += own * nbytes / (d if way["zero"] >= since else 1)
    for _ in range(min(p, way["microbatches"])):
        held += layers * tokens * h * (2 if again else 34 / t)

    bus = cluster["between"] * min(cluster["rings"], max(1, cluster["per_node"] // t))
    ring = 2 * own * (d - 1) / d / (cluster["inside"] if d * t <= cluster["per_node"] else bus)
    one_pass = 2 * own * tokens / cluster["flops"]
    reduced = 2 * (t - 1) / t * 2 * tokens * h * layers / cluster["inside"]
    seconds = 0.0
    for number in range(way["microbatches"] + p - 1):
        compute = one_pass * (4 if again else 3)
        seconds += compute + reduced * (6 if again else 4)
        if way["zero"] == 3 and number < way["microbatches"]:
            seconds += ring + max(0.0, 2 * ring - compute)
    return held, seconds if way["zero"] == 3 else seconds + 2 * ring


@right
def price_plan_in_numpy(model, cluster, way):
    zero, m, p = way["zero"], way["microbatches"], way["pipeline"]
    shares = np.where(np.array([1, 2, 3]) <= zero, way["data"], 1)
    own = model["parameters"] / np.prod([way["tensor"], p])
    states = own * (np.array([12, 2, 2]) / shares).sum()
    compute, talk = _pass(model, cluster, way)
    seconds = (m + p - 1) * np.add(compute, talk) + _data(model, cluster, way, compute)
    return np.array([states + _activations(model, way), seconds])


@right
def price_plan_by_name(model, cluster, way):
    """In GB and hours until the end, and as a named tuple."""
    Price = namedtuple("Price", "nbytes seconds")
    compute, talk = (seconds / 3600 for seconds in _pass(model, cluster, way))
    hours = (way["microbatches"] + way["pipeline"] - 1) * (compute + talk)
    hours += _data(model, cluster, way, compute * 3600) / 3600
    gb = _states(model, way) / 1e9 + _activations(model, way) / 1e9
    return Price(nbytes=gb * 1e9, seconds=hours * 3600)
