"""Known answers to one_f_one_b_schedule."""

import itertools
from collections import deque

from course_lib.checks.known_answers import right, wrong
from course_lib.techniques import schedules

from ._common import alternating_row, gpipe_rows, one_f_one_b_rows


@right
def one_f_one_b_schedule(p, m):
    """Greedy: a backward whenever one is due, by counting how many forwards have been run."""
    table = []
    for s in range(p):
        row, forwards, backwards = [], 0, 0
        while backwards < m:
            if forwards < m and forwards - backwards < p - s:
                row.append(("F", s, forwards))
                forwards += 1
            else:
                row.append(("B", s, backwards))
                backwards += 1
        table.append(row)
    return table


@wrong(says="this is GPipe's order")
def gpipe_again(p, m):
    return gpipe_rows(p, m)


@wrong(says="at any moment a single rank works")
def without_warm_up(p, m):
    return [alternating_row(s, m, 0) for s in range(p)]


@wrong(says="there is no microbatch 2: 2 of them count from 0 to 1")
def warm_up_not_clamped(p, m):
    rows = []
    for s in range(p):
        warm_up = p - s - 1
        row = [("F", s, i) for i in range(warm_up)]
        for i in range(m - warm_up):
            row += [("F", s, warm_up + i), ("B", s, i)]
        rows.append(row + [("B", s, i) for i in range(max(0, m - warm_up), m)])
    return rows


@wrong(says="the ranks wait in a circle")
def warm_up_the_wrong_way_round(p, m):
    return [alternating_row(s, m, min(s, m)) for s in range(p)]


@wrong(says="stage 0 holds more microbatches than it needs")
def twice_the_warm_up(p, m):
    return [alternating_row(s, m, min(2 * (p - s - 1), m)) for s in range(p)]


@wrong(says="stage 1 runs 3 forwards before its first backward")
def the_same_warm_up_everywhere(p, m):
    return [alternating_row(s, m, min(p - 1, m)) for s in range(p)]


@wrong(says="never runs B or I of microbatch 2")
def cool_down_forgotten(p, m):
    return [row[: 2 * m - min(p - s - 1, m)] for s, row in enumerate(one_f_one_b_rows(p, m))]


@wrong(says="stage 0 runs 2 forwards before its first backward")
def one_forward_short(p, m):
    return [alternating_row(s, m, min(max(p - s - 2, 0), m)) for s in range(p)]


@wrong(says="your function calls one_f_one_b of course_lib")
def library_1f1b(p, m):
    return schedules.one_f_one_b(p, m)


@right
def backward_first(p, m):
    """The warm-up is one longer, and the pairs are the other way round."""
    table = []
    for s in range(p):
        w = min(p - s, m)
        row = [("F", s, i) for i in range(w)]
        for i in range(m - w):
            row += [("B", s, i), ("F", s, w + i)]
        table.append(row + [("B", s, i) for i in range(m - w, m)])
    return table


@right
def by_generators(p, m):
    def row(s):
        forwards, backwards = (iter([(kind, s, i) for i in range(m)]) for kind in "FB")
        yield from itertools.islice(forwards, min(p - s - 1, m))
        for forward in forwards:
            yield forward
            yield next(backwards)
        yield from backwards

    return tuple(tuple(row(s)) for s in range(p))


@right
def sorted_by_time(p, m):
    """F of microbatch i as soon as one may be held, B of i at its turn on the last stage."""

    def when(s, kind, i):
        return (2 * i, 1) if kind == "B" else (2 * max(0, i - (p - s - 1)), 0)

    ops = [[(kind, s, i) for kind in "FB" for i in range(m)] for s in range(p)]
    return [
        sorted(row, key=lambda op, s=s: (*when(s, op[0], op[2]), op[2]))
        for s, row in enumerate(ops)
    ]


@wrong(says="both results lie in memory that it keeps between calls")
def a_table_that_is_kept(p, m, table=[]):
    table[:] = one_f_one_b_rows(p, m)
    return table


@wrong(says="stage 1 runs 1 forward before its first backward")
def as_if_there_were_m_stages(p, m):
    if m >= p:
        return one_f_one_b_rows(p, m)
    return one_f_one_b_rows(m, m) + [alternating_row(s, m, 0) for s in range(m, p)]


@right
def by_the_distance_between_f_and_b(p, m):
    """Every backward stands behind its forward and as many others as stages follow."""
    table = []
    for s in range(p):
        row = deque(("F", s, i) for i in range(m))
        for i in range(m):
            row.insert(2 * i + min(p - s, m - i), ("B", s, i))
        table.append(list(row))
    return table
