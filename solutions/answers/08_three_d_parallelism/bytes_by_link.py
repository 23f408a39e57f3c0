"""Known answers to bytes_by_link."""

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
