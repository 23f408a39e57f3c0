"""Known answers to zigzag_positions."""

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong


def chunks_of(length, n):
    if length % (2 * n):
        raise ValueError(f"{length} tokens cannot be cut into {2 * n} equal chunks")
    return list(torch.arange(length).view(2 * n, -1))


@right
def from_both_ends(length, n, rank):
    size, rest = divmod(length, 2 * n)
    if rest != 0:
        raise ValueError(f"length {length} is no multiple of {2 * n}")
    front = torch.arange(rank * size, (rank + 1) * size)
    back = torch.arange(length - (rank + 1) * size, length - rank * size)
    return torch.cat((front, back))


@right
def as_a_list(length, n, rank):
    if length % (2 * n) > 0:
        raise ValueError(f"{n} ranks cannot share {length} tokens")
    size = length // (2 * n)
    mine = {rank, 2 * n - 1 - rank}
    return [position for position in range(length) if position // size in mine]


@right
def by_indexing(length, n, rank):
    if length % (2 * n):
        raise ValueError(f"{length} tokens, {2 * n} chunks")
    return torch.arange(length).reshape(2 * n, length // (2 * n))[[rank, -1 - rank]].flatten()


@right
def by_a_mask(length, n, rank):
    if length % (2 * n) != 0:
        raise ValueError(f"{length} tokens do not make {2 * n} chunks")
    everything = torch.arange(length)
    chunk = everything // (length // (2 * n))
    return everything[(chunk == rank) | (chunk == 2 * n - rank - 1)]


@right
def in_numpy(length, n, rank):
    if length % (2 * n):
        raise ValueError(f"cannot cut {length} into 2 x {n} pieces")
    return np.concatenate([np.split(np.arange(length), 2 * n)[i] for i in (rank, -rank - 1)])


@wrong(says="this is the plain split")
def plainly(length, n, rank):
    chunks_of(length, n)
    return torch.arange(length).chunk(n)[rank]


@wrong(says="this is the striped split")
def in_stripes(length, n, rank):
    chunks_of(length, n)
    return torch.arange(length)[rank::n]


@wrong(says="the second chunk counts from the end")
def the_same_in_both_halves(length, n, rank):
    chunks = chunks_of(length, n)
    return torch.cat([chunks[rank], chunks[n + rank]])


@wrong(says="not in ascending order")
def end_before_front(length, n, rank):
    chunks = chunks_of(length, n)
    return torch.cat([chunks[-1 - rank], chunks[rank]])


@wrong(says="the second chunk is reversed")
def mirrored(length, n, rank):
    chunks = chunks_of(length, n)
    return torch.cat([chunks[rank], chunks[-1 - rank].flip(0)])


@wrong(says="raise a ValueError")
def uneven_chunks(length, n, rank):
    chunks = torch.arange(length).tensor_split(2 * n)
    return torch.cat([chunks[rank], chunks[-1 - rank]])


@wrong(says="names both numbers")
def a_silent_error(length, n, rank):
    if length % (2 * n):
        raise ValueError("no")
    return torch.cat([chunks_of(length, n)[i] for i in (rank, -1 - rank)])


@wrong(says="these are the places on the rank")
def places_on_the_rank(length, n, rank):
    return torch.arange(len(chunks_of(length, n)[0]) * 2)


@wrong(says="raise a ValueError")
def refuses_too_little(length, n, rank):
    """n ranks divide the length, but 2n chunks do not."""
    if length % n:
        raise ValueError(f"{length} tokens over {n} ranks")
    chunks = torch.arange(length).tensor_split(2 * n)
    return torch.cat([chunks[rank], chunks[-1 - rank]])


@wrong(says="positions are whole numbers")
def floats(length, n, rank):
    found = chunks_of(length, n)
    return torch.cat([found[rank], found[-1 - rank]]).double()
