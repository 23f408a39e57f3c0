"""Known answers to gpipe_schedule."""

import itertools
from typing import NamedTuple

from course_lib.checks.known_answers import right, wrong
from course_lib.techniques import schedules

from ._common import alternating_row, gpipe_rows, one_f_one_b_rows


@right
def gpipe_schedule(p, m):
    """The original's order: backward from the last microbatch to the first."""
    return tuple(
        tuple([("F", s, i) for i in range(m)] + [("B", s, m - 1 - i) for i in range(m)])
        for s in range(p)
    )


@right
def gpipe_in_order(p, m):
    return [[("F", s, i) for i in range(m)] + [("B", s, i) for i in range(m)] for s in range(p)]


@wrong(says="GPipe finishes all forwards before it begins with backwards")
def another_schedule(p, m):
    return one_f_one_b_rows(p, m)


@wrong(says="GPipe finishes all forwards before it begins")
def one_after_the_other(p, m):
    return [alternating_row(s, m, 0) for s in range(p)]


@wrong(says="stage 0 is on rank 0 too")
def every_rank_is_stage_0(p, m):
    return [gpipe_rows(p, m)[0]] * p


@wrong(says="microbatch 3 never goes through")
def last_microbatch_forgotten(p, m):
    return gpipe_rows(p, m - 1) if m > 1 else gpipe_rows(p, m)


@wrong(says="there is no microbatch 4: 4 of them count from 0 to 3")
def counts_from_one(p, m):
    return [[(kind, s, i + 1) for kind, s, i in row] for s, row in enumerate(gpipe_rows(p, m))]


@wrong(says="never runs B or I of microbatch 0")
def forward_only(p, m):
    return [[("F", s, i) for i in range(m)] for s in range(p)]


@wrong(says="this is one list of operations")
def one_flat_list(p, m):
    return [op for row in gpipe_rows(p, m) for op in row]


@wrong(says="there are 3 ranks, and your table has 2 rows")
def hard_coded_for_two(p, m):
    return gpipe_rows(2, m)


@wrong(says="position 0 of rank 0 is not an operation")
def stage_and_microbatch_as_text(p, m):
    return [[f"{kind}{s}.{i}" for kind, s, i in row] for row in gpipe_rows(p, m)]


@wrong(says="your function calls gpipe of course_lib.techniques.schedules")
def by_the_library(p, m):
    return schedules.gpipe(p, m)


@wrong(says="needs F0.0, which comes after it")
def backwards_before_forwards(p, m):
    return [[(kind, s, i) for kind in "BF" for i in range(m)] for s in range(p)]


class Step(NamedTuple):
    kind: str
    stage: int
    microbatch: int


@right
def in_named_tuples(p, m):
    return [[Step(kind, s, i) for kind in "FB" for i in range(m)] for s in range(p)]


@right
def in_lists(p, m):
    half = [[k, i] for k in "FB" for i in range(m)]
    return tuple([[kind, stage, i] for kind, i in half] for stage in range(p))


@right
def rows_by_product(p, m):
    return [[(k, s, i) for k, i in itertools.product("FB", range(m))] for s in range(p)]


@wrong(says="both results lie in memory that it keeps between calls")
def a_table_in_a_default_argument(p, m, table=[]):
    table[:] = gpipe_rows(p, m)
    return table


@wrong(says="rank 1 has its backwards in another order than rank 0")
def backwards_in_another_order_on_each_stage(p, m):
    turned = [[("B", s, (i + s) % m) for i in range(m)] for s in range(p)]
    return [row[:m] + back for row, back in zip(gpipe_rows(p, m), turned, strict=True)]


@wrong(says="twice")
def last_backward_twice(p, m):
    return [row + row[-1:] for row in gpipe_rows(p, m)]
