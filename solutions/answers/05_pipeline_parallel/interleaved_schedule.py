"""Known answers to interleaved_schedule."""

import itertools
from collections import deque

from course_lib.checks.known_answers import right, wrong
from course_lib.techniques import schedules


@right
def interleaved_schedule(p, m, v):
    table = []
    for r in range(p):
        order = sorted((i // p, c, i) for i in range(m) for c in range(v))
        forwards = [("F", r + c * p, i) for _, c, i in order]
        order = sorted((i // p, -c, i) for i in range(m) for c in range(v))
        backwards = [("B", r - c * p, i) for _, c, i in order]
        row = []
        room = (v - 1) * p + 2 * (p - 1 - r) + 1
        while backwards:
            held = sum(1 if kind == "F" else -1 for kind, _, _ in row)
            row.append(forwards.pop(0) if forwards and held < room else backwards.pop(0))
        table.append(row)
    return table


def interleaved_rows(p, m, v, home=lambda r, c, p, v: r + c * p, extra=0, turn=reversed):
    rows = []
    for r in range(p):
        groups = range(0, m, p)

        def passes(kind, chunks, r=r, groups=groups):
            return [
                (kind, home(r, c, p, v), i)
                for start in groups
                for c in chunks
                for i in range(start, min(start + p, m))
            ]

        forwards = passes("F", range(v))
        backwards = passes("B", list(turn(range(v))))
        w = min(2 * (p - r - 1) + (v - 1) * p + extra, m * v)
        row = forwards[:w]
        for k in range(m * v - w):
            row += [forwards[w + k], backwards[k]]
        rows.append(row + backwards[m * v - w :])
    return rows


@wrong(says="neighbouring stages are on one rank")
def neighbours_together(p, m, v):
    rows = []
    for r in range(p):
        stages = range(r * v, r * v + v)
        rows.append([("F", s, i) for i in range(m) for s in stages])
        rows[r] += [("B", s, i) for i in range(m) for s in reversed(stages)]
    return rows


@wrong(says="stage 0 is on rank 0 too")
def chunks_without_ranks(p, m, v):
    return interleaved_rows(p, m, v, home=lambda r, c, p, v: c)


@wrong(says="the ranks wait in a circle")
def backwards_through_the_chunks_in_order(p, m, v):
    return interleaved_rows(p, m, v, turn=lambda chunks: chunks)


@wrong(says="holds more than it has to")
def a_longer_warm_up(p, m, v):
    return interleaved_rows(p, m, v, extra=2)


@wrong(says="microbatches go in groups of p")
def all_microbatches_through_one_stage_first(p, m, v):
    rows = []
    for r in range(p):
        stages = range(r, p * v, p)
        rows.append([("F", s, i) for s in stages for i in range(m)])
        rows[r] += [("B", s, i) for i in range(m) for s in reversed(stages)]
    return rows


@wrong(says="no rank holds stage")
def one_stage_is_lost(p, m, v):
    rows = interleaved_rows(p, m, v)
    return [[(k, s + (s > 0), i) for k, s, i in row] for row in rows]


@wrong(says="stage 0 never runs B or I of microbatch 2")
def an_iterator_that_is_used_up(p, m, v):
    rows = []
    for r in range(p):
        stages = reversed(range(r, p * v, p))
        backwards = [
            ("B", s, i) for start in range(0, m, p) for s in stages for i in range(start, start + p)
        ]
        row = interleaved_rows(p, m, v)[r]
        rows.append([op for op in row if op[0] == "F" or op in backwards])
    return rows


@wrong(says="it needs F3.0, which comes after it")
def the_warm_up_of_plain_1f1b(p, m, v):
    rows = []
    for r in range(p):
        forwards = (
            [("F", r + c * p, i) for a in range(0, m, p) for c in range(v) for i in range(a, a + p)]
            if m >= p
            else [("F", r + c * p, i) for c in range(v) for i in range(m)]
        )
        backwards = [
            ("B", r + c * p, i)
            for a in range(0, m, p)
            for c in reversed(range(v))
            for i in range(a, min(a + p, m))
        ]
        w = min(p - r - 1 + (v - 1), m * v)
        row = forwards[:w]
        for k in range(m * v - w):
            row += [forwards[w + k], backwards[k]]
        rows.append(row + backwards[m * v - w :])
    return rows


@wrong(says="your function calls interleaved of course_lib")
def library_interleaved(p, m, v):
    return schedules.interleaved(p, m, v)


@right
def by_arithmetic(p, m, v):
    def op(kind, r, k):
        chunk = k // p % v
        return kind, r + p * (chunk if kind == "F" else v - 1 - chunk), k // (p * v) * p + k % p

    def row(r):
        n, w = m * v, min(m * v, 2 * (p - r - 1) + (v - 1) * p)
        pairs = ((op("F", r, w + k), op("B", r, k)) for k in range(n - w))
        steady = [each for pair in pairs for each in pair]
        return [op("F", r, k) for k in range(w)] + steady + [op("B", r, k) for k in range(n - w, n)]

    return tuple(map(row, range(p)))


@right
def rows_of_lists(p, m, v):
    return [[list(op) for op in row] for row in interleaved_rows(p, m, v)]


@wrong(says="both results lie in memory that it keeps between calls")
def rows_that_are_kept(p, m, v, table=[]):
    table[:] = interleaved_rows(p, m, v)
    return table


@wrong(says="holds more than it has to")
def all_forwards_first(p, m, v):
    return [sorted(row, key=lambda op: op[0] == "B") for row in interleaved_rows(p, m, v)]


@wrong(says="holds other stages than those with stage % p")
def two_chunks_always(p, m, v):
    return interleaved_rows(p, m, min(v, 2))


@right
def by_merging_two_queues(p, m, v):
    table = []
    for r in range(p):
        forwards = deque(_passes("F", p, m, range(v), r))
        backwards = deque(_passes("B", p, m, reversed(range(v)), r))
        row, warm_up = [], 2 * (p - r - 1) + (v - 1) * p
        while forwards or backwards:
            if forwards:
                row.append(forwards.popleft())
            if len(row) > warm_up or not forwards:
                row.append(backwards.popleft())
        table.append(row)
    return table


def _passes(kind, p, m, chunks, r):
    order = list(chunks)
    return [(kind, r + c * p, g + i) for g in range(0, m, p) for c in order for i in range(p)]


@right
def sorted_by_a_key(p, m, v):
    """Forwards by group, part and microbatch; backwards likewise, with the parts
    reversed."""
    table = []
    for r in range(p):
        pairs = list(itertools.product(range(v), range(m)))
        up = sorted(pairs, key=lambda x: (x[1] // p, x[0], x[1]))
        down = sorted(pairs, key=lambda x: (x[1] // p, -x[0], x[1]))
        late = min(2 * (p - r - 1) + (v - 1) * p, m * v)
        timed = [(k, ("F", r + c * p, i)) for k, (c, i) in enumerate(up)]
        timed += [(k + late + 0.5, ("B", r + c * p, i)) for k, (c, i) in enumerate(down)]
        table.append([op for _, op in sorted(timed)])
    return table
