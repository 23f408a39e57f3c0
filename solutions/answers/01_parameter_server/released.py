"""Known answers to released."""

import math

import numpy
import torch

from course_lib.checks.known_answers import right, wrong


@right
def released(finished, waiting, bound):
    lowest = sorted(finished)[0]
    return {worker for worker in waiting if not finished[worker] > lowest + bound}


@right
def released_of_an_array(finished, waiting, bound):
    lead = numpy.array(finished) - min(finished)
    return [worker for worker in numpy.array(waiting, dtype=int) if lead[worker] <= bound]


@right
def released_from_the_last(finished, waiting, bound):
    may = [worker for worker in waiting if all(finished[worker] - f <= bound for f in finished)]
    return tuple(reversed(may))


@wrong(says="a lead of exactly the bound is allowed")
def one_too_strict(finished, waiting, bound):
    return [w for w in waiting if finished[w] - min(finished) < bound]


@wrong(says="one task further ahead than the bound")
def one_too_far(finished, waiting, bound):
    return [w for w in waiting if finished[w] - min(finished) <= bound + 1]


@wrong(says="the slowest may be one that is computing")
def only_those_that_wait(finished, waiting, bound):
    slowest = min((finished[v] for v in waiting), default=0)
    return [w for w in waiting if finished[w] - slowest <= bound]


@wrong(says="this compares with the fastest")
def compared_with_the_fastest(finished, waiting, bound):
    return [w for w in waiting if max(finished) - finished[w] <= bound]


@wrong(says="this compares with the average")
def compared_with_the_average(finished, waiting, bound):
    return [w for w in waiting if finished[w] - sum(finished) / len(finished) <= bound]


@wrong(says="this holds everyone back")
def all_or_nobody(finished, waiting, bound):
    return waiting if max(finished) - min(finished) <= bound else []


@wrong(says="some could start and are held back")
def one_at_a_time(finished, waiting, bound):
    return [w for w in waiting if finished[w] - min(finished) <= bound][:1]


@wrong(says="only workers that wait can start")
def everyone_within_the_bound(finished, waiting, bound):
    return [w for w, count in enumerate(finished) if count - min(finished) <= bound]


@wrong(says="this lets everyone who waits start")
def eventual_whatever_the_bound(finished, waiting, bound):
    return [w for w in waiting if finished[w] <= math.inf]


@right
def released_in_torch(finished, waiting, bound):
    lead = torch.tensor(finished) - min(finished)
    allowed = torch.nonzero(lead <= bound).flatten().tolist()
    return [worker for worker in allowed if worker in waiting]


@right
def released_by_a_filter(finished, waiting, bound):
    return list(filter(lambda worker: finished[worker] <= min(finished) + bound, waiting))


@wrong(says="look at all workers, not at those that compute")
def slowest_of_those_that_compute(finished, waiting, bound):
    computing = [f for worker, f in enumerate(finished) if worker not in waiting]
    slowest = min(computing or finished)
    return [worker for worker in waiting if finished[worker] - slowest <= bound]
