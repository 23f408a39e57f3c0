"""Known answers to causal_work."""

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong


def pairs(queries, keys):
    return int((queries[:, None] >= keys).sum())


def table(positions, count=pairs, owner=lambda r, s: r - s):
    n = len(positions)
    return [[count(positions[r], positions[owner(r, s) % n]) for s in range(n)] for r in range(n)]


@right
def as_a_tensor(positions):
    n = len(positions)
    result = torch.zeros(n, n, dtype=torch.int64)
    for rank, queries in enumerate(positions):
        for step in range(n):
            keys = positions[(rank - step) % n]
            result[rank, step] = (queries.unsqueeze(1) >= keys.unsqueeze(0)).sum()
    return result


@right
def by_searching(positions):
    """Positions are sorted: how many keys a query sees is where it would be put among them."""
    n = len(positions)
    rows = []
    for r in range(n):
        keys = [positions[(r - s) % n].contiguous() for s in range(n)]
        rows.append([torch.searchsorted(k, positions[r], right=True).sum().item() for k in keys])
    return rows


@right
def by_plain_loops(positions):
    n = len(positions)
    lists = [each.tolist() for each in positions]
    rows = [[0] * n for _ in lists]
    for r in range(n):
        for s in range(n):
            rows[r][s] = sum(k <= q for q in lists[r] for k in lists[(r - s) % n])
    return tuple(map(tuple, rows))


@right
def in_numpy(positions):
    places = [np.asarray(each) for each in positions]
    n = len(places)
    work = np.empty((n, n), dtype=int)
    for r, s in np.ndindex(n, n):
        work[r, s] = np.greater_equal.outer(places[r], places[(r - s) % n]).sum()
    return work


@right
def one_table_of_all_tokens(positions):
    """Everybody against everybody, then sums over squares."""
    n, tokens = len(positions), len(positions[0])
    place = torch.cat(list(positions))
    sees = (place[:, None] >= place).view(n, tokens, n, tokens).sum((1, 3))
    return [sees[r].roll(-1 - r).flip(0).tolist() for r in range(n)]


@wrong(says="the columns should be steps")
def by_owner(positions):
    return table(positions, owner=lambda r, s: s)


@wrong(says="not of r + s")
def blocks_from_behind(positions):
    return table(positions, owner=lambda r, s: r + s)


@wrong(says="a query sees its own key as well")
def without_itself(positions):
    return table(positions, lambda q, k: int((q[:, None] > k).sum()))


@wrong(says="these are all pairs")
def without_a_mask(positions):
    return table(positions, lambda q, k: len(q) * len(k))


@wrong(says="counts in full here")
def whole_blocks(positions):
    return table(positions, lambda q, k: len(q) * len(k) * bool((q[:, None] >= k).any()))


@wrong(says="rows are ranks and columns are steps")
def transposed(positions):
    return [list(row) for row in zip(*table(positions), strict=True)]


@wrong(says="these are the pairs that are hidden")
def the_hidden_ones(positions):
    return table(positions, lambda q, k: int((q[:, None] < k).sum()))


@wrong(says="these are shares of a block")
def as_shares(positions):
    return table(positions, lambda q, k: pairs(q, k) / (len(q) * len(k)))


@wrong(says="one per rank, of")
def only_of_each_rank(positions):
    return [sum(row) for row in table(positions)]
