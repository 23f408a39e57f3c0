"""Known answers to place_by_bytes."""

import itertools
from collections import namedtuple
from itertools import pairwise

import numpy
import torch

from course_lib.checks.known_answers import right, wrong


@right
def place_by_bytes(sizes, servers):
    """Element by element, then runs of it."""
    line = [(t, i) for t, size in enumerate(sizes) for i in range(size)]
    placed, taken = [], 0
    for server in range(servers):
        share = len(line) // servers + (server < len(line) % servers)
        mine, taken = line[taken : taken + share], taken + share
        pieces = []
        for tensor, run in itertools.groupby(mine, key=lambda element: element[0]):
            numbers = [i for _, i in run]
            pieces.append([tensor, numbers[0], numbers[-1] + 1])
        placed.append(tuple(pieces))
    return tuple(placed)


@right
def places_by_divmod(sizes, servers):
    """The first servers take the remainder; one pass over the tensors, with numpy's numbers."""
    share, more = divmod(sum(sizes), servers)
    loads = [share + (server < more) for server in range(servers)]
    placed, server = [[] for _ in loads], 0
    for tensor, size in enumerate(sizes):
        start = 0
        while start < size:
            while not loads[server]:
                server += 1
            stop = min(size, start + loads[server])
            placed[server].append((numpy.int64(tensor), start, stop))
            loads[server] -= stop - start
            start = stop
    return placed


Piece = namedtuple("Piece", "tensor start stop")


@right
def places_by_name(sizes, servers):
    edges = numpy.linspace(0, sum(sizes), servers + 1).round().astype(int).tolist()
    return [[Piece(*piece) for piece in pieces] for pieces in pieces_of(sizes, edges)]


def cut_the_line(total, servers):
    return [total * s // servers for s in range(servers + 1)]


@wrong(says="only whole tensors are dealt out")
def whole_tensors(sizes, servers):
    placed, loads = [[] for _ in range(servers)], [0] * servers
    for tensor in sorted(range(len(sizes)), key=lambda t: -sizes[t]):
        least = loads.index(min(loads))
        placed[least].append((tensor, 0, sizes[tensor]))
        loads[least] += sizes[tensor]
    return placed


@wrong(says="each tensor is cut for itself")
def each_tensor_cut(sizes, servers):
    placed = [[] for _ in range(servers)]
    for tensor, size in enumerate(sizes):
        edges = [-(-size * s // servers) for s in range(servers + 1)]
        for server in range(servers):
            start, stop = edges[server], edges[server + 1]
            if start < stop:
                placed[server].append((tensor, start, stop))
    return placed


@wrong(says="the remainder of the division lands on one server")
def remainder_on_the_last(sizes, servers):
    return pieces_of(sizes, [sum(sizes) // servers * s for s in range(servers)] + [sum(sizes)])


@wrong(says="nobody owns some elements")
def remainder_lost(sizes, servers):
    return pieces_of(sizes, [sum(sizes) // servers * s for s in range(servers + 1)])


@wrong(says="start and stop count within one tensor")
def numbers_of_the_line(sizes, servers):
    edges, offsets = cut_the_line(sum(sizes), servers), [0]
    for size in sizes:
        offsets.append(offsets[-1] + size)
    return [
        [
            (t, max(offsets[t], edges[s]), min(offsets[t + 1], edges[s + 1]))
            for t in range(len(sizes))
            if max(offsets[t], edges[s]) < min(offsets[t + 1], edges[s + 1])
        ]
        for s in range(servers)
    ]


@wrong(says="some have two owners")
def stop_included(sizes, servers):
    return [
        [(t, start, min(stop + 1, sizes[t])) for t, start, stop in pieces]
        for pieces in pieces_of(sizes, cut_the_line(sum(sizes), servers))
    ]


@wrong(says="these are not ranges in order")
def element_by_element(sizes, servers):
    line = [(t, i, i + 1) for t, size in enumerate(sizes) for i in range(size)]
    return [line[server::servers] for server in range(servers)]


@wrong(says="a list of pieces for every server is expected")
def only_servers_with_keys(sizes, servers):
    return [p for p in pieces_of(sizes, cut_the_line(sum(sizes), servers)) if p]


def pieces_of(sizes, edges):
    placed, offsets = [], [sum(sizes[:t]) for t in range(len(sizes))]
    for low, high in pairwise(edges):
        pieces = []
        for t, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
            start, stop = max(low, offset) - offset, min(high, offset + size) - offset
            if start < stop:
                pieces.append((t, start, stop))
        placed.append(pieces)
    return placed


@wrong(says="the third number of a piece looks like its length")
def starts_and_lengths(sizes, servers):
    placed = pieces_of(sizes, cut_the_line(sum(sizes), servers))
    return [[(t, start, stop - start) for t, start, stop in pieces] for pieces in placed]


@wrong(says="every server takes the share rounded up")
def shares_rounded_up(sizes, servers):
    total = sum(sizes)
    share = -(-total // servers)
    return pieces_of(sizes, [min(total, share * server) for server in range(servers + 1)])


@right
def places_by_cutting_a_tensor(sizes, servers):
    """The numbers of all elements, chunked by torch."""
    tensor_of = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    element = torch.cat([torch.arange(size) for size in sizes])
    placed = []
    for numbers in torch.arange(sum(sizes)).tensor_split(servers):
        tensors = tensor_of[numbers]
        pieces = []
        for tensor in tensors.unique().tolist():
            mine = element[numbers][tensors == tensor]
            pieces.append((tensor, int(mine.min()), int(mine.max()) + 1))
        placed.append(pieces)
    return placed


@right
def places_by_recursion(sizes, servers):
    def cut(tensor, start, left, room):
        """Pieces of the next `room` elements from element `start` of `tensor` on."""
        if room == 0:
            return [], tensor, start
        stop = min(sizes[tensor], start + room)
        rest, *at = cut(
            tensor + (stop == sizes[tensor]),
            0 if stop == sizes[tensor] else stop,
            left,
            room - (stop - start),
        )
        return ([(tensor, start, stop)] if stop > start else []) + rest, *at

    placed, tensor, start = [], 0, 0
    for server in range(servers):
        room = sum(sizes) * (server + 1) // servers - sum(sizes) * server // servers
        pieces, tensor, start = cut(tensor, start, servers, room)
        placed.append(pieces)
    return placed


@wrong(says="the servers are the wrong way round")
def last_keys_first(sizes, servers):
    return place_by_bytes(sizes, servers)[::-1]
