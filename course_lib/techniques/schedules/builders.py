"""Pipeline schedules: who runs what, and when. One function per schedule, all return a table.

A model is cut into p stages on p ranks; a batch into m microbatches. While the first microbatch
travels forward and the last one back, ranks stand idle: the bubble. With equal stages

    naive             bubble (p-1)/p of the time: one rank works, the others wait
    GPipe             (p-1)/(m+p-1) of the time,   m microbatches in flight
    1F1B              the same bubble,             min(m, p - s) in flight on stage s
    interleaved 1F1B  about 1/v of that bubble,    more in flight, v times the messages
    ZB-H1             a third of 1F1B's idle time, memory as 1F1B

(p-1)/m, also in use, is the same idle time as a part of the working time.

A row runs from left to right, whenever what an operation needs has arrived (validity.py).
Backward passes go through the microbatches in the order of the forward passes, in all schedules, so
gradients are summed in one order and come out equal to the last bit.
"""

from collections.abc import Callable, Iterator

from .text import Op, Schedule


def naive(p: int) -> Schedule:
    """Model parallelism without a pipeline: the whole batch through one stage after the other.

    Huang et al., "GPipe", NeurIPS 2019, Figure 2(b).
    """
    return gpipe(p, 1)


def gpipe(p: int, m: int) -> Schedule:
    """All forwards, then all backwards: Huang et al., "GPipe", NeurIPS 2019, section 2.3."""
    _check_sizes(p, m)
    return tuple(
        tuple(Op("F", s, i) for i in range(m)) + tuple(Op("B", s, i) for i in range(m))
        for s in range(p)
    )


def one_f_one_b(p: int, m: int) -> Schedule:
    """Backward as soon as there is one: a stage has no more than min(m, p - s) in flight.

    PipeDream-Flush: Narayanan et al., "Memory-Efficient Pipeline-Parallel DNN Training", ICML
    2021, section 3.2; the same authors' Megatron-LM, SC 2021, section 2.2.1.
    """
    _check_sizes(p, m)
    rows = []
    for s in range(p):
        warm_up = min(p - s - 1, m)
        row = [Op("F", s, i) for i in range(warm_up)]
        for i in range(m - warm_up):
            row += (Op("F", s, warm_up + i), Op("B", s, i))
        row += [Op("B", s, i) for i in range(m - warm_up, m)]
        rows.append(tuple(row))
    return tuple(rows)


def interleaved(p: int, m: int, v: int) -> Schedule:
    """1F1B with v smaller stages a rank: rank r holds stages r, r + p, ..., r + (v-1)p.

    Microbatches go in groups of p: the group through the rank's first stage, then through its
    second, ... So m must be a multiple of p; fewer than p are one small group. Narayanan et al.,
    "Efficient Large-Scale Language Model Training on GPU Clusters", SC 2021, section 2.2.2.
    """
    _check_sizes(p, m)
    group = min(p, m)
    if v < 1:
        raise ValueError(f"v = {v}: a rank holds at least 1 stage")
    if m % group:
        raise ValueError(
            f"m = {m} microbatches are not a multiple of p = {p}, so interleaving cannot group them"
        )
    rows = []
    for r in range(p):
        forward = list(_group_by_group("F", p, m, group, [r + c * p for c in range(v)]))
        backward = list(_group_by_group("B", p, m, group, [r + c * p for c in reversed(range(v))]))
        warm_up = min((v - 1) * group + 2 * (p - r - 1), m * v)
        row = forward[:warm_up]
        for f, b in zip(forward[warm_up:], backward[: m * v - warm_up], strict=True):
            row += (f, b)
        rows.append((*row, *backward[m * v - warm_up :]))
    return tuple(rows)


def zb_h1(p: int, m: int) -> Schedule:
    """1F1B whose backward is split: weight gradients wait, and fill what was the bubble.

    Stage s puts off up to s weight passes. So all stages hold p microbatches, the last ones in part
    for W only: the memory of 1F1B's first stage. Qi et al., "Zero Bubble Pipeline Parallelism",
    ICLR 2024, section 2 and Figure 3.
    """
    _check_sizes(p, m)
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


BY_NAME: dict[str, Callable[[int, int, int], Schedule]] = {
    "GPipe": lambda p, m, v: gpipe(p, m),
    "1F1B": lambda p, m, v: one_f_one_b(p, m),
    "interleaved": interleaved,
    "ZB-H1": lambda p, m, v: zb_h1(p, m),
}
"""The schedules by the names that papers give them, of (p, m, v); only `interleaved` has a v."""


def _group_by_group(kind: str, p: int, m: int, group: int, stages: list[int]) -> Iterator[Op]:
    """A group of microbatches through all of a rank's stages, then the next group."""
    for start in range(0, m, group):
        for stage in stages:
            for i in range(start, start + group):
                yield Op(kind, stage, i)


def _check_sizes(p: int, m: int) -> None:
    if p < 1 or m < 1:
        raise ValueError(f"p = {p} ranks and m = {m} microbatches must both be at least 1")
