"""Who is what: the ranks of workers and servers, and what each server owns.

    job = Job(workers=(0, 1, 2), servers=((3,), (4,)), placement=by_range(layout.total, 2))
    job = Job(workers=(0, 1), servers=((2, 3),), ...)      rank 3 is the replica of rank 2

Workers never talk to each other, only to servers (Li et al., OSDI 2014, section 3).
"""

from dataclasses import dataclass

import torch.distributed as dist

from .bounded_delay import SEQUENTIAL
from .key_ranges import Layout, count
from .placement import Placement


@dataclass(frozen=True)
class Job:
    """What all workers and servers have to agree on.

    workers: their global ranks. The first one's parameters are those that training starts from.
    servers: for each part of the placement its rank, and the rank of its replica if it has one.
    placement: the keys of each server.
    bound: SEQUENTIAL (0), a bounded delay, or EVENTUAL.
    logical_time: take messages in the order of the workers' own clocks instead of arrival, so that
        a run with workers of different speeds goes the same way every time.
    group: of all these ranks (None: the default group).
    """

    workers: tuple[int, ...]
    servers: tuple[tuple[int, ...], ...]
    placement: Placement
    bound: float = SEQUENTIAL
    logical_time: bool = False
    group: dist.ProcessGroup | None = None

    def __post_init__(self) -> None:
        ranks = [*self.workers, *(rank for chain in self.servers for rank in chain)]
        if len(set(ranks)) != len(ranks) or not self.workers:
            raise ValueError(f"every rank has one role, and there are workers: got {ranks}")
        if any(len(chain) not in (1, 2) for chain in self.servers):
            raise ValueError(f"a server has no replica or one: got {self.servers}")
        if len(self.servers) != len(self.placement):
            raise ValueError(
                f"the keys are placed on {len(self.placement)} servers, and there are "
                f"{len(self.servers)}"
            )

    def check(self, layout: Layout) -> None:
        """`ValueError` if the placement is not one of all keys of `layout`."""
        ranges = sorted(keys for owned in self.placement for keys in owned)
        edges = [0, *(keys.stop for keys in ranges)]
        if [keys.start for keys in ranges] != edges[:-1] or edges[-1] != layout.total:
            raise ValueError(
                f"the placement has {count(ranges)} keys up to {edges[-1]}, some twice or with "
                f"gaps; the model has the keys 0 to {layout.total}"
            )
