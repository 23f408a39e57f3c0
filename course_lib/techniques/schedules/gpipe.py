"""GPipe: all forward passes, then all backward passes; and what it improves on.

The bubble is (p-1)/(m+p-1) of the time, and m microbatches are in flight on every stage. With one
microbatch it is the naive schedule: one rank works, the others wait.
"""

from .schedule import Op, Schedule, check_sizes


def naive(p: int) -> Schedule:
    """Model parallelism without a pipeline: the whole batch through one stage after the other.

    Huang et al., "GPipe", NeurIPS 2019, Figure 2(b).
    """
    return gpipe(p, 1)


def gpipe(p: int, m: int) -> Schedule:
    """All forwards, then all backwards: Huang et al., "GPipe", NeurIPS 2019, section 2.3."""
    check_sizes(p, m)
    return tuple(
        tuple(Op("F", s, i) for i in range(m)) + tuple(Op("B", s, i) for i in range(m))
        for s in range(p)
    )
