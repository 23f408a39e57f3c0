"""Known answers to context_bytes."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong


def block(tokens, n, kv_heads, head_size, element_size):
    return 2 * tokens // n * kv_heads * head_size * element_size


def outgoing(tokens, n, heads, kv_heads, head_size, element_size):
    return Fraction(n - 1, n) * 2 * (heads + kv_heads) * tokens // n * head_size * element_size


@right
def hop_by_hop(tokens, n, heads, kv_heads, head_size, element_size):
    ring = sum(block(tokens, n, kv_heads, head_size, element_size) for _ in range(n - 1))
    parts = [tokens // n * h // n * head_size * element_size for h in (heads, kv_heads)]
    return ring, ring, (n - 1) * (2 * parts[0] + 2 * parts[1])


@right
def as_a_tensor_of_three(tokens, n, heads, kv_heads, head_size, element_size):
    of_a_head = tokens / n * head_size * element_size
    ring = (n - 1) * 2 * kv_heads * of_a_head
    ulysses = (n - 1) / n * 2 * (heads + kv_heads) * of_a_head
    return torch.tensor([ring, ring, ulysses], dtype=torch.float64)


@right
def in_fractions(tokens, n, heads, kv_heads, head_size, element_size):
    ring = Fraction(n - 1, n) * 2 * tokens * kv_heads * head_size * element_size
    return [ring, ring, Fraction(heads + kv_heads, n * kv_heads) * ring]


@right
def in_numpy(tokens, n, heads, kv_heads, head_size, element_size):
    part = tokens // n * head_size * element_size
    ring = 2 * kv_heads * part * (n - 1)
    return np.array([ring, ring, 2 * (heads + kv_heads) * part * (n - 1) // n])


class Sent(NamedTuple):
    ring: int
    all_gather: int
    ulysses: int


@right
def by_counting_messages(tokens, n, heads, kv_heads, head_size, element_size):
    row = head_size * element_size
    block = tokens // n * kv_heads * row
    hops = [2 * block for _ in range(1, n)]
    to_each = [tokens // n * (heads // n + kv_heads // n) * row * 2 for _ in range(1, n)]
    return Sent(sum(hops), sum(hops), sum(to_each))


@wrong(says="the last one that arrives is not handed on")
def n_blocks(tokens, n, heads, kv_heads, head_size, element_size):
    ring = n * block(tokens, n, kv_heads, head_size, element_size)
    return ring, ring, outgoing(tokens, n, heads, kv_heads, head_size, element_size)


@wrong(says="keys and values have kv_heads heads")
def all_heads_of_keys(tokens, n, heads, kv_heads, head_size, element_size):
    return n_minus_one_blocks(tokens, n, heads, heads, head_size, element_size)


def n_minus_one_blocks(tokens, n, heads, kv_heads, head_size, element_size):
    ring = (n - 1) * block(tokens, n, kv_heads, head_size, element_size)
    return ring, ring, outgoing(tokens, n, heads, kv_heads, head_size, element_size)


@wrong(says="keys and values are two tensors")
def keys_alone(tokens, n, heads, kv_heads, head_size, element_size):
    ring, _, ulysses = n_minus_one_blocks(tokens, n, heads, kv_heads, head_size, element_size)
    return ring / 2, ring / 2, ulysses


@wrong(says="these are elements")
def elements(tokens, n, heads, kv_heads, head_size, element_size):
    return n_minus_one_blocks(tokens, n, heads, kv_heads, head_size, 1)


@wrong(says="ulysses: (n - 1)/n is missing")
def also_to_itself(tokens, n, heads, kv_heads, head_size, element_size):
    ring, _, ulysses = n_minus_one_blocks(tokens, n, heads, kv_heads, head_size, element_size)
    return ring, ring, ulysses * n / max(1, n - 1)


@wrong(says="and not all T")
def blocks_of_the_whole(tokens, n, heads, kv_heads, head_size, element_size):
    return n_minus_one_blocks(tokens * n, n, heads, kv_heads, head_size, element_size)


@wrong(says="has to come back")
def one_way(tokens, n, heads, kv_heads, head_size, element_size):
    ring, _, ulysses = n_minus_one_blocks(tokens, n, heads, kv_heads, head_size, element_size)
    return ring, ring, ulysses / 2


@wrong(says="the output comes back")
def without_the_output(tokens, n, heads, kv_heads, head_size, element_size):
    ring, _, ulysses = n_minus_one_blocks(tokens, n, heads, kv_heads, head_size, element_size)
    return ring, ring, ulysses * (heads + 2 * kv_heads) / (2 * heads + 2 * kv_heads)


@wrong(says="this asks for what each one sends")
def together(tokens, n, heads, kv_heads, head_size, element_size):
    ring, _, ulysses = n_minus_one_blocks(tokens, n, heads, kv_heads, head_size, element_size)
    return ring * n, ring * n, ulysses * n


@wrong(says="three numbers are expected")
def only_two(tokens, n, heads, kv_heads, head_size, element_size):
    return n_minus_one_blocks(tokens, n, heads, kv_heads, head_size, element_size)[1:]
