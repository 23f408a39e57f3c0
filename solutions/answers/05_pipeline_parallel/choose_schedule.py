"""Known answers to choose_schedule."""

import itertools
import operator
from collections import namedtuple
from fractions import Fraction

import numpy
import numpy as np

from course_lib.checks.known_answers import right, wrong


def divisors(number):
    return [n for n in range(1, number + 1) if number % n == 0]


def ways(job):
    for p in divisors(job["machines"]):
        if job["layers"] % p:
            continue
        for m in divisors(job["batch"] * p // job["machines"]):
            yield "gpipe", p, m, 1
            yield "1f1b", p, m, 1
            for v in divisors(job["layers"] // p)[1:]:
                if m % p == 0:
                    yield "interleaved", p, m, v


def in_flight(schedule, p, m, v):
    if schedule == "interleaved":
        return min(m * v, (v - 1) * p + 2 * (p - 1) + 1)
    return m if schedule == "gpipe" else min(m, p)


def held(job, way, count=in_flight, states=1, each=1):
    _, p, m, v = way
    sequences = job["batch"] * p // job["machines"] // m
    stage = sequences * job["activations"] * job["layers"] / (p * v)
    return states * job["states"] * job["layers"] / p + each * count(*way) * stage


def fastest(job, seconds, fits, some=lambda way: True):
    return min((w for w in ways(job) if fits(w) and some(w)), key=lambda w: seconds(*w))


def fits(job):
    return lambda way: held(job, way) <= job["memory"]


@right
def choose_schedule(job, seconds):
    best = None
    for way in ways(job):
        if held(job, way) > job["memory"]:
            continue
        if best is None or seconds(*way) < seconds(*best):
            best = way
    return best


@right
def asks_for_everything_and_catches(job, seconds):
    """Tries sizes blindly: `seconds` refuses what is impossible."""
    found = []
    sizes = (range(1, job["machines"] + 1), range(1, job["batch"] + 1), (1, 2, 3, 4, 6, 8, 12))
    for p, m, v in itertools.product(*sizes):
        if job["machines"] % p:
            continue
        for schedule in ("gpipe", "1f1b", "interleaved"):
            try:
                found.append((seconds(schedule, p, m, v), [schedule, p, m, v]))
            except ValueError:
                continue
    return min(each for each in found if held(job, each[1]) <= job["memory"])[1]


@right
def from_the_fastest_on(job, seconds):
    """Sorted by time first; with exact fractions for what a stage holds."""
    for schedule, p, m, v in sorted(ways(job), key=lambda way: seconds(*way)):
        share = Fraction(job["layers"], p)
        sequences = Fraction(job["batch"] * p, job["machines"] * m)
        kept = sequences * share / v * in_flight(schedule, p, m, v) * int(job["activations"])
        if kept + share * int(job["states"]) <= job["memory"]:
            return schedule, numpy.int64(p), numpy.int64(m), v
    return None


@wrong(says="it must also fit into memory")
def memory_forgotten(job, seconds):
    return fastest(job, seconds, lambda way: True)


@wrong(says="the states are left out")
def states_forgotten(job, seconds):
    return fastest(job, seconds, lambda way: held(job, way, states=0) <= job["memory"])


@wrong(says="the activations are left out")
def activations_forgotten(job, seconds):
    return fastest(job, seconds, lambda way: held(job, way, each=0) <= job["memory"])


@wrong(says="GPipe has all m microbatches in flight")
def gpipe_holds_what_1f1b_holds(job, seconds):
    def count(schedule, p, m, v):
        return in_flight("1f1b" if schedule == "gpipe" else schedule, p, m, v)

    return fastest(job, seconds, lambda way: held(job, way, count) <= job["memory"])


@wrong(says="an interleaved stage has layers / (p v) layers")
def large_stages_when_interleaved(job, seconds):
    def count(*way):
        return in_flight(*way) * way[3]

    return fastest(job, seconds, lambda way: held(job, way, count) <= job["memory"])


@wrong(says="it is the best of 1f1b, and another schedule is faster")
def always_1f1b(job, seconds):
    return fastest(job, seconds, fits(job), lambda way: way[0] == "1f1b")


@wrong(says="it is the best for p = 8: try every p")
def all_machines_in_one_pipeline(job, seconds):
    return fastest(job, seconds, fits(job), lambda way: way[1] == job["machines"])


@wrong(says="it is the best for v = 2: try every v")
def two_chunks_at_most(job, seconds):
    return fastest(job, seconds, fits(job), lambda way: way[3] <= 2)


@wrong(says="a schedule and three sizes")
def without_the_schedule(job, seconds):
    return choose_schedule(job, seconds)[1:]


@wrong(says="does not divide the 32 sequences of a copy")
def one_sequence_each_whatever_the_copies(job, seconds):
    schedule, p, _, v = choose_schedule(job, seconds)
    return schedule, p, job["batch"], v


@wrong(says="p = 3 must divide 8 machines")
def any_p_that_divides_the_layers(job, seconds):
    return min(
        (("1f1b", p, p, 1) for p in range(1, 9) if job["layers"] % p == 0),
        key=lambda way: seconds(*way),
    )


@wrong(says="there is no schedule 'zb_h1'")
def a_schedule_that_is_not_asked(job, seconds):
    return "zb_h1", *choose_schedule(job, seconds)[1:]


@wrong(says="several are in flight")
def one_microbatch_at_a_time(job, seconds):
    return fastest(job, seconds, lambda way: held(job, way, lambda *w: w[3]) <= job["memory"])


@wrong(says="sizes are whole numbers of at least 1")
def a_share_of_a_microbatch(job, seconds):
    schedule, p, m, v = choose_schedule(job, seconds)
    return schedule, p, job["batch"] / job["machines"] / 3, v


@right
def pruned_by_what_was_found(job, seconds):
    """A generator of (time, way) that is asked for its smallest; a named tuple comes back."""
    Way = namedtuple("Way", "schedule machines microbatches chunks")
    timed = ((seconds(*way), Way(*way)) for way in ways(job) if held(job, way) <= job["memory"])
    return min(timed, key=operator.itemgetter(0), default=(None, None))[1]


@right
def as_arrays(job, seconds):
    every = list(ways(job))
    memory = np.array([float(held(job, way)) for way in every])
    times = np.array([seconds(*way) for way in every])
    times[memory > job["memory"]] = np.inf
    return list(every[int(times.argmin())])
