"""Known answers to bytes_sent."""

from collections import OrderedDict, namedtuple
from fractions import Fraction

import numpy
import torch

from course_lib.checks.known_answers import right, wrong


@right
def bytes_sent(workers, size, servers):
    ring = sum(size / workers for _ in range(2 * (workers - 1)))
    return [workers * (size / servers), torch.tensor(float(size)), ring]


Sent = namedtuple("Sent", "server worker ring")


@right
def bytes_in_fractions(workers, size, servers):
    ring = Fraction(2 * (workers - 1) * size, workers)
    return Sent(Fraction(workers * size, servers), numpy.int64(size), ring)


@right
def bytes_as_an_array(workers, size, servers):
    return numpy.array([workers / servers, 1, 2 - 2 / workers]) * size


@wrong(says="with several servers each has only its part of the keys")
def all_keys_by_each_server(workers, size, servers):
    return workers * size, size, 2 * (workers - 1) / workers * size


@wrong(says="this is in and out together")
def in_and_out(workers, size, servers):
    return 2 * workers * size / servers, size, 2 * (workers - 1) / workers * size


@wrong(says="a worker sends to every server, its whole gradient in all")
def worker_to_one_server(workers, size, servers):
    return workers * size / servers, size / servers, 2 * (workers - 1) / workers * size


@wrong(says="the ring goes round twice")
def one_round(workers, size, servers):
    return workers * size / servers, size, (workers - 1) / workers * size


@wrong(says="2(n-1)/n of the tensor: n - 1 steps of one n-th")
def rough_ring(workers, size, servers):
    return workers * size / servers, size, 2 * size


@wrong(says="three numbers are expected")
def only_the_server(workers, size, servers):
    return workers * size / servers


@right
def bytes_in_a_dictionary(workers, size, servers):
    sent = OrderedDict(server=size * workers / servers, worker=1.0 * size)
    sent["ring"] = (workers - 1) * (2 * size / workers)
    return tuple(sent.values())


@right
def bytes_message_by_message(workers, size, servers):
    """As they are sent: a piece for each worker, one for each server, and the ring's chunks."""
    piece, chunk = size / servers, size / workers
    server = sum(piece for _ in range(workers))
    worker = sum(piece for _ in range(servers))
    return server, worker, sum([chunk] * (workers - 1)) * 2


@wrong(says="// leaves out what does not divide")
def bytes_by_whole_division(workers, size, servers):
    return workers * size // servers, size, 2 * (workers - 1) * size // workers
