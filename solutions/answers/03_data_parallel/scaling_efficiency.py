"""Known answers to scaling_efficiency."""

import functools
from fractions import Fraction

import numpy
import torch

from course_lib.checks.known_answers import right, wrong


@right
def scaling_efficiency(forward, backward, ready, sizes, seconds):
    """Backwards in time: the step cannot be shorter than any bucket and all behind it."""
    tail, longest = 0.0, backward
    for moment, size in zip(reversed(ready), reversed(sizes), strict=True):
        tail += seconds(size)
        longest = max(longest, moment + tail)
    return torch.tensor((forward + backward) / (forward + longest), dtype=torch.float64)


@right
def efficiency_as_a_fold(forward, backward, ready, sizes, seconds):
    buckets = zip(ready, map(seconds, sizes), strict=True)
    last = functools.reduce(lambda free, bucket: max(free, bucket[0]) + bucket[1], buckets, 0)
    return numpy.float64(forward + backward) / (forward + numpy.maximum(backward, last))


@right
def efficiency_in_fractions(forward, backward, ready, sizes, seconds):
    free = Fraction(0)
    for moment, size in zip(ready, sizes, strict=True):
        free = max(free, Fraction(moment)) + Fraction(seconds(size))
    return Fraction(forward + backward) / (Fraction(forward) + max(Fraction(backward), free))


def costs_of(sizes, seconds):
    return [seconds(size) for size in sizes]


def efficiency(forward, backward, tail):
    return (forward + backward) / (forward + max(backward, tail))


def last_arrival(ready, sizes, seconds):
    free = 0.0
    for moment, size in zip(ready, sizes, strict=True):
        free = max(free, moment) + seconds(size)
    return free


@wrong(says="nothing is hidden here")
def nothing_hidden(forward, backward, ready, sizes, seconds):
    return (forward + backward) / (forward + backward + sum(costs_of(sizes, seconds)))


@wrong(says="a bucket can only leave when it is ready")
def network_starts_with_backward(forward, backward, ready, sizes, seconds):
    return efficiency(forward, backward, sum(costs_of(sizes, seconds)))


@wrong(says="here each bucket has the network to itself")
def a_network_for_each_bucket(forward, backward, ready, sizes, seconds):
    arrivals = [t + seconds(size) for t, size in zip(ready, sizes, strict=True)]
    return efficiency(forward, backward, max(arrivals, default=0.0))


@wrong(says="the last bucket is missing")
def last_bucket_forgotten(forward, backward, ready, sizes, seconds):
    return efficiency(forward, backward, last_arrival(ready[:-1], sizes[:-1], seconds))


@wrong(says="communication is not free")
def perfect_scaling(forward, backward, ready, sizes, seconds):
    return 1.0


@wrong(says="invert it")
def slow_down(forward, backward, ready, sizes, seconds):
    return 1 / efficiency(forward, backward, last_arrival(ready, sizes, seconds))


@wrong(says="this is per cent")
def per_cent(forward, backward, ready, sizes, seconds):
    return 100 * efficiency(forward, backward, last_arrival(ready, sizes, seconds))


@wrong(says="the forward pass is part of the step as well")
def without_the_forward_pass(forward, backward, ready, sizes, seconds):
    return backward / max(backward, last_arrival(ready, sizes, seconds))


@wrong(says="max(backward, ...)")
def a_step_of_the_network(forward, backward, ready, sizes, seconds):
    return (forward + backward) / (forward + last_arrival(ready, sizes, seconds))


@right
def efficiency_by_recursion(forward, backward, ready, sizes, seconds):
    def done(count):
        """When the first `count` buckets have arrived."""
        if count == 0:
            return 0.0
        return max(done(count - 1), ready[count - 1]) + seconds(sizes[count - 1])

    step = forward + (late if (late := done(len(sizes))) > backward else backward)
    return numpy.float64((forward + backward) / step)


@right
def efficiency_by_events(forward, backward, ready, sizes, seconds):
    """What sticks out of the backward pass is added to the step."""
    clock = 0
    for i, size in enumerate(sizes):
        if clock < ready[i]:
            clock = ready[i]
        clock += seconds(size)
    out = torch.tensor(float(clock - backward), dtype=torch.float64).clamp(min=0)
    return (forward + backward) / (forward + backward + out)


@wrong(says="follow the network: when is it free")
def buckets_as_they_are_ready(forward, backward, ready, sizes, seconds):
    """The network carries them in order, even where a later one is ready first."""
    pairs = sorted(zip(ready, sizes, strict=True))
    tail = last_arrival([moment for moment, _ in pairs], [size for _, size in pairs], seconds)
    return efficiency(forward, backward, tail)
