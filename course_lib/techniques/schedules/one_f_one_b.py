"""1F1B: one forward pass, one backward pass, in turn. GPipe's bubble, with less in memory.

A stage that has warmed up runs a backward pass as soon as there is one, so stage s keeps the
activations of min(m, p - s) microbatches, where GPipe keeps those of m.
"""

from .schedule import Op, Schedule, check_sizes


def one_f_one_b(p: int, m: int) -> Schedule:
    """Backward as soon as there is one: a stage has no more than min(m, p - s) in flight.

    PipeDream-Flush: Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML
    2021, section 3.2; the same authors' Megatron-LM, SC 2021, section 2.2.1.
    """
    check_sizes(p, m)
    rows = []
    for s in range(p):
        warm_up = min(p - s - 1, m)
        row = [Op("F", s, i) for i in range(warm_up)]
        for i in range(m - warm_up):
            row += (Op("F", s, warm_up + i), Op("B", s, i))
        row += [Op("B", s, i) for i in range(m - warm_up, m)]
        rows.append(tuple(row))
    return tuple(rows)
