"""How far workers may run apart: three consistency models, and one rule for all of them.

    sequential      a task starts when every task before it has finished, on all workers
    bounded delay   a task starts when every task more than `bound` before it has finished
    eventual        any task may start

A worker's clock counts the tasks that it has finished. It leads by its own clock less the slowest
one, and may start its next task while it leads by at most `bound`. Sequential is the bound 0 and
eventual an infinite one.

The models and their names: Li et al., OSDI 2014, section 3.5. The same rule as *stale synchronous
parallel*: Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
Server", NIPS 2013.
"""

import math
from collections.abc import Iterable

SEQUENTIAL = 0
EVENTUAL = math.inf


class Progress:
    """The clocks of the workers, and who may go on.

    It communicates nothing and decides nothing by time, so the same finishes in the same order
    give the same decisions on every server.
    """

    def __init__(self, workers: Iterable[int], bound: float) -> None:
        if bound < 0:
            raise ValueError(f"the bound is 0 (sequential) or more, not {bound}")
        self.bound = bound
        self.clocks = dict.fromkeys(workers, 0)

    @property
    def slowest(self) -> int:
        """The smallest clock of those who are still there."""
        return min(self.clocks.values())

    def lead(self, worker: int) -> int:
        """How many tasks `worker` is ahead of the slowest."""
        return self.clocks[worker] - self.slowest

    def may_start(self, worker: int) -> bool:
        """Whether `worker` may start its next task now."""
        return self.lead(worker) <= self.bound

    def finish(self, worker: int) -> None:
        """`worker` has finished one more task."""
        self.clocks[worker] += 1

    def remove(self, worker: int) -> None:
        """`worker` has left or died; nobody waits for it any more."""
        self.clocks.pop(worker, None)
