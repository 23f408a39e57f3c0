"""A parameter server: some ranks keep the parameters, all others compute with them.

              server 0     server 1         ranges of keys (key_ranges, placement), the optimizer
               |  ^         |  ^            and the workers' clocks (apply_gradients, bounded_delay)
        values v  | grads   v  |
              worker 0  worker 1  worker 2  pull, compute, push (worker, filters)

To read in this order: key_ranges, placement, job, bounded_delay, range_clocks, messages,
apply_gradients, inbox, server, worker, filters. Runs on gloo, whose `recv` can take a message of
any rank.

Needs of its neighbours: make_optimizer.

Li et al., "Scaling Distributed Machine Learning with the Parameter Server", OSDI 2014. Before it:
Dean et al., "Large Scale Distributed Deep Networks" (DistBelief), NIPS 2012; Ho et al., "More
Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", NIPS 2013.
"""

from .apply_gradients import Shard, Step
from .bounded_delay import EVENTUAL, SEQUENTIAL, Progress
from .filters import SignificantlyModified
from .job import Job
from .key_ranges import KeyRange, Layout
from .messages import PeerLost
from .placement import HashRing, Placement, by_hash, by_range, by_tensor, imbalance
from .range_clocks import RangeClocks
from .server import Report, Server, Start
from .worker import Worker

__all__ = [
    "EVENTUAL",
    "SEQUENTIAL",
    "HashRing",
    "Job",
    "KeyRange",
    "Layout",
    "PeerLost",
    "Placement",
    "Progress",
    "RangeClocks",
    "Report",
    "Server",
    "Shard",
    "SignificantlyModified",
    "Start",
    "Step",
    "Worker",
    "by_hash",
    "by_range",
    "by_tensor",
    "imbalance",
]
