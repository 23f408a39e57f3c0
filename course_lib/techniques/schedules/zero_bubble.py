"""ZB-H1: backward in two parts, one of which can wait, fills most of the bubble.

The gradient of a stage's input (I) is what the stage before waits for; the gradient of its weights
(W) can run at any time before the step. A third of 1F1B's idle time is left, in 1F1B's memory.
"""

from .schedule import Op, Schedule, check_sizes


def zb_h1(p: int, m: int) -> Schedule:
    """1F1B whose backward is split: weight gradients wait, and fill what was the bubble.

    Stage s puts off up to s weight passes. So all stages hold p microbatches, the last ones in part
    for W only: the memory of 1F1B's first stage. Qi et al., "Zero Bubble Pipeline Parallelism",
    ICLR 2024, section 2 and Figure 3.
    """
    check_sizes(p, m)
    rows = []
    for s in range(p):
        forwards = min(p - s - 1, m)
        row = [Op("F", s, i) for i in range(forwards)]
        weights = 0
        for i in range(m):
            steady = forwards < m
            if steady:
                row.append(Op("F", s, forwards))
                forwards += 1
            row.append(Op("I", s, i))
            if not steady or i + 1 - weights > s:
                row.append(Op("W", s, weights))
                weights += 1
        rows.append((*row, *(Op("W", s, i) for i in range(weights, m))))
    return tuple(rows)
