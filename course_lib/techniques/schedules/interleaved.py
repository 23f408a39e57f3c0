"""Interleaved 1F1B: v smaller stages on each rank. 1/v of the bubble, v times the messages."""

from collections.abc import Iterator

from .schedule import Op, Schedule, check_sizes


def interleaved(p: int, m: int, v: int) -> Schedule:
    """1F1B with v smaller stages a rank: rank r holds stages r, r + p, ..., r + (v-1)p.

    Microbatches go in groups of p: the group through the rank's first stage, then through its
    second, ... So m must be a multiple of p; fewer than p are one small group. Narayanan et al.,
    "Efficient Large-Scale Language Model Training on GPU Clusters", SC 2021, section 2.2.2.
    """
    check_sizes(p, m)
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


def _group_by_group(kind: str, p: int, m: int, group: int, stages: list[int]) -> Iterator[Op]:
    """A group of microbatches through all of a rank's stages, then the next group."""
    for start in range(0, m, group):
        for stage in stages:
            for i in range(start, start + group):
                yield Op(kind, stage, i)
