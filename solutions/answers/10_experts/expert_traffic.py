"""Known answers to expert_traffic."""

from fractions import Fraction

import numpy as np
import torch

from course_lib.checks.known_answers import right, wrong


@right
def expert_traffic(tokens, hidden, k, n, element_size):
    return 4 * tokens * k * hidden * (n - 1) / n * element_size


@right
def as_a_fraction(tokens, hidden, k, n, element_size):
    return Fraction(4 * tokens * k * hidden * element_size) * (1 - Fraction(1, n))


@right
def part_by_part(tokens, hidden, k, n, element_size):
    to_each = tokens * k / n * hidden * element_size
    there_and_back = 2 * to_each * (n - 1)
    return sum([there_and_back] * 2)


@right
def in_numpy(tokens, hidden, k, n, element_size):
    table = np.full((n, n), tokens * k / n)  # rows from each rank to each
    np.fill_diagonal(table, 0)
    return 4 * table[0].sum() * hidden * element_size


@right
def as_a_tensor(tokens, hidden, k, n, element_size):
    rows = torch.tensor(tokens * k * (n - 1) / n, dtype=torch.float64)
    return 4 * rows * hidden * element_size


@wrong(says="this is half of it")
def forward_only(tokens, hidden, k, n, element_size):
    return 2 * tokens * k * hidden * (n - 1) / n * element_size


@wrong(says="this is one all-to-all")
def there_only(tokens, hidden, k, n, element_size):
    return tokens * k * hidden * (n - 1) / n * element_size


@wrong(says="a token goes to each of its k experts")
def one_row_for_each_token(tokens, hidden, k, n, element_size):
    return 4 * tokens * hidden * (n - 1) / n * element_size


@wrong(says="a share 1/n of the rows is for the rank itself")
def all_rows(tokens, hidden, k, n, element_size):
    return 4 * tokens * k * hidden * element_size


@wrong(says="the factor 2 is an all-reduce's")
def as_all_reduces(tokens, hidden, k, n, element_size):
    return 4 * 2 * tokens * k * hidden * (n - 1) / n * element_size


@wrong(says="each has `element_size` bytes")
def elements(tokens, hidden, k, n, element_size):
    return 4 * tokens * k * hidden * (n - 1) / n


@wrong(says="this is what all ranks send together")
def of_all_ranks(tokens, hidden, k, n, element_size):
    return 4 * tokens * k * hidden * (n - 1) * element_size


@wrong(says="one number is expected")
def there_and_back(tokens, hidden, k, n, element_size):
    return [2 * tokens * k * hidden * (n - 1) / n * element_size] * 2
