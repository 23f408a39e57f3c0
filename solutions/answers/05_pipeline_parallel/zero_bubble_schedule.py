"""Known answers to zero_bubble_schedule."""

import itertools
from collections import deque

from course_lib.checks.known_answers import right, wrong
from course_lib.techniques import schedules

from ._common import one_f_one_b_rows
from .one_f_one_b_schedule import one_f_one_b_schedule


@right
def zero_bubble_schedule(p, m):
    """1F1B with I for B; the W of microbatch i goes behind the I of i + s, or of the cool-down."""
    table = []
    for s, plain in enumerate(one_f_one_b_schedule(p, m)):
        last_forward = plain.index(("F", s, m - 1))
        row, waiting = [], []
        for place, (kind, _, i) in enumerate(plain):
            row.append(("F" if kind == "F" else "I", s, i))
            if kind == "B":
                waiting.append(("W", s, i))
                if len(waiting) > s or place > last_forward + 1:
                    row.append(waiting.pop(0))
        table.append(row + waiting)
    return table


def zero_bubble_rows(p, m, put_off=lambda s, p: s):
    rows = []
    for s in range(p):
        w, row, plain = 0, [], one_f_one_b_rows(p, m)[s]
        last = plain.index(("F", s, m - 1))
        for place, (kind, _, i) in enumerate(plain):
            row.append(("I" if kind == "B" else "F", s, i))
            if kind == "B" and (i + 1 - w > put_off(s, p) or place > last + 1):
                row.append(("W", s, w))
                w += 1
        rows.append(row + [("W", s, i) for i in range(w, m)])
    return rows


@right
def by_the_count_of_waiting_alone(p, m):
    rows = []
    for s, plain in enumerate(one_f_one_b_rows(p, m)):
        row, waiting = [], deque()
        for kind, _, i in plain:
            row.append(("I" if kind == "B" else "F", s, i))
            if kind == "B":
                waiting.append(("W", s, i))
                if len(waiting) > s:
                    row.append(waiting.popleft())
        rows.append([*row, *waiting])
    return rows


@wrong(says="there is a B in your table")
def not_split(p, m):
    return one_f_one_b_rows(p, m)


@wrong(says="every W follows its I at once, which is a B again")
def w_right_behind_i(p, m):
    return [
        [
            half
            for op in row
            for half in ([op] if op[0] == "F" else [("I", *op[1:]), ("W", *op[1:])])
        ]
        for row in one_f_one_b_rows(p, m)
    ]


@wrong(says="runs its W's too early")
def the_new_w_not_counted(p, m):
    return zero_bubble_rows(p, m, put_off=lambda s, p: s - 1)


@wrong(says="holds more than it has to")
def puts_off_one_more(p, m):
    return zero_bubble_rows(p, m, put_off=lambda s, p: s + 1)


@wrong(says="all W's are left to the end")
def all_weights_at_the_end(p, m):
    return [
        [("F" if kind == "F" else "I", s, i) for kind, s, i in row]
        + [("W", s, i) for i in range(m)]
        for s, row in enumerate(one_f_one_b_rows(p, m))
    ]


@wrong(says="which comes after it")
def w_before_i(p, m):
    return [
        [
            half
            for op in row
            for half in ([op] if op[0] == "F" else [("W", *op[1:]), ("I", *op[1:])])
        ]
        for row in one_f_one_b_rows(p, m)
    ]


@wrong(says="never runs B or W of microbatch")
def last_weights_forgotten(p, m):
    return [row[:-1] for row in zero_bubble_rows(p, m)]


@wrong(says="is idle more than it has to be")
def puts_off_the_other_way_round(p, m):
    return zero_bubble_rows(p, m, put_off=lambda s, p: p - 1 - s)


@wrong(says="your function calls zb_h1 of course_lib")
def library_zero_bubble(p, m):
    return schedules.zb_h1(p, m)


@right
def with_a_queue(p, m):
    table = []
    for s in range(p):
        forwards, waiting = iter(range(m)), deque()
        row = [["F", s, i] for i in itertools.islice(forwards, p - s - 1)]
        for i in range(m):
            forward = next(forwards, None)
            if forward is not None:
                row.append(["F", s, forward])
            row.append(["I", s, i])
            waiting.append(i)
            if forward is None or len(waiting) > s:
                row.append(["W", s, waiting.popleft()])
        table.append(row + [["W", s, i] for i in waiting])
    return tuple(table)


@right
def by_cutting_and_pasting(p, m):
    """The W's are put behind the I's of a finished skeleton, from the last to the first."""
    table = []
    for s, plain in enumerate(one_f_one_b_rows(p, m)):
        row = [("I" if kind == "B" else "F", s, i) for kind, s, i in plain]
        last = row.index(("F", s, m - 1))
        places, done = [], 0
        for place, (kind, _, i) in enumerate(row):
            if kind == "I" and (place > last + 1 or i + 1 - done > s):
                places.append(place)
                done += 1
        for w in range(done - 1, -1, -1):
            row.insert(places[w] + 1, ("W", s, w))
        table.append(row + [("W", s, w) for w in range(done, m)])
    return table


@wrong(says="both results lie in memory that it keeps between calls")
def halves_that_are_kept(p, m, table=[]):
    table[:] = zero_bubble_rows(p, m)
    return table


@wrong(says="there is a B in your table")
def whole_backwards_on_the_first_stage(p, m):
    first, *others = zero_bubble_rows(p, m)
    return [[("B", *op[1:]) if op[0] == "I" else op for op in first if op[0] != "W"], *others]


@wrong(says="never runs B or W of microbatch 0")
def no_weights_at_all(p, m):
    return [[op for op in row if op[0] != "W"] for row in zero_bubble_rows(p, m)]


@right
def with_an_own_count_of_waiting(p, m):
    table = []
    for s in range(p):
        forwards, backwards, weights = iter(range(m)), 0, 0
        row = [("F", s, i) for i in itertools.islice(forwards, p - s - 1)]
        for backwards in range(1, m + 1):
            forward = next(forwards, None)
            if forward is not None:
                row.append(("F", s, forward))
            row.append(("I", s, backwards - 1))
            if forward is None or backwards - weights > s:
                row.append(("W", s, weights))
                weights += 1
        row.extend(("W", s, i) for i in range(weights, m))
        table.append(row)
    return table


@right
def from_the_table_of_1f1b(p, m):
    """1F1B with I for B, and a W after the I's that the rule names."""
    table = []
    for s, row in enumerate(one_f_one_b_rows(p, m)):
        new, done, forwards = [], 0, sum(op[0] == "F" for op in row)
        for kind, _, i in row:
            if kind == "F":
                new.append(("F", s, i))
                forwards -= 1
                continue
            new.append(("I", s, i))
            cool_down = forwards == 0 and i + min(p - s - 1, m) >= m
            if cool_down or i + 1 - done > s:
                new.append(("W", s, done))
                done += 1
        table.append(new + [("W", s, i) for i in range(done, m)])
    return table
