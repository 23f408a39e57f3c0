"""Known answers to bytes_by_link."""

from collections import Counter, namedtuple

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong


@right
def bytes_by_link(matrix, ranks_per_node):
    table = torch.tensor(matrix)
    nodes = torch.arange(len(matrix)) // ranks_per_node
    same = nodes[:, None] == nodes
    return [table[same].sum(), table[~same].sum()]


def by_link(matrix, together, amount=lambda sent: sent):
    inside = between = 0
    for source, row in enumerate(matrix):
        for destination, sent in enumerate(row):
            if together(source, destination):
                inside += amount(sent)
            else:
                between += amount(sent)
    return inside, between


@wrong(says="the two are swapped")
def between_first(matrix, ranks_per_node):
    return by_link(matrix, lambda s, d: s // ranks_per_node == d // ranks_per_node)[::-1]


@wrong(says="not rank % it")
def remainder_as_node(matrix, ranks_per_node):
    return by_link(matrix, lambda s, d: s % ranks_per_node == d % ranks_per_node)


@wrong(says="compare nodes, not distances")
def near_enough(matrix, ranks_per_node):
    return by_link(matrix, lambda s, d: abs(s - d) < ranks_per_node)


@wrong(says="this counts messages, not bytes")
def counts_messages(matrix, ranks_per_node):
    return by_link(matrix, lambda s, d: s // ranks_per_node == d // ranks_per_node, bool)


@wrong(says="add up to all bytes")
def one_direction_only(matrix, ranks_per_node):
    inside = between = 0
    for source in range(len(matrix)):
        for destination in range(source):
            sent = matrix[source][destination]
            if source // ranks_per_node == destination // ranks_per_node:
                inside += sent
            else:
                between += sent
    return inside, between


@wrong(says="two numbers are expected")
def only_between(matrix, ranks_per_node):
    return by_link(matrix, lambda s, d: s // ranks_per_node == d // ranks_per_node)[1]


@right
def counted_by_answer(matrix, ranks_per_node):
    counter = Counter()
    for source, row in enumerate(matrix):
        for destination, sent in enumerate(row):
            counter[source // ranks_per_node == destination // ranks_per_node] += sent
    return counter[True], counter[False]


@right
def blocks_on_the_diagonal(matrix, ranks_per_node):
    inside = 0
    for rank, row in enumerate(matrix):
        first = rank // ranks_per_node * ranks_per_node
        inside += sum(row[first : first + ranks_per_node])
    return inside, sum(map(sum, matrix)) - inside


@right
def masked_array(matrix, ranks_per_node):
    table = np.array(matrix, dtype=float)
    nodes = np.arange(len(table)) // ranks_per_node
    same = np.equal.outer(nodes, nodes)
    return np.array([table[same].sum(), table[~same].sum()])


@right
def as_a_named_tuple(matrix, ranks_per_node):
    Links = namedtuple("Links", "inside between")
    return Links(*by_link(matrix, lambda s, d: s // ranks_per_node == d // ranks_per_node))


@wrong(says="add up to all bytes of the matrix")
def only_full_nodes(matrix, ranks_per_node):
    ranks = len(matrix) // ranks_per_node * ranks_per_node
    table = [row[:ranks] for row in matrix[:ranks]]
    return by_link(table, lambda s, d: s // ranks_per_node == d // ranks_per_node)


@wrong(says="add up to all bytes of the matrix")
def added_up_in_float32(matrix, ranks_per_node):
    table = torch.tensor(matrix, dtype=torch.float32)
    nodes = torch.arange(len(matrix)) // ranks_per_node
    same = nodes[:, None] == nodes
    return table[same].sum().item(), table[~same].sum().item()
