"""Every rank's block in turn, passed round the ring while the one before is used."""

import math
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist

from course_lib.techniques.collectives.members import Members


class Buffers:
    """Room for the keys and values of two ranks at a time, (2, B, K, T_s, D), or their gradients.

    A ring needs no more: what has been passed on gives its place to what comes next. New memory for
    every block would cost about as much as a copy of it, for each page has to be mapped first.

    k: a rank's keys; sizes: every rank's T_s; dtype: that of `k` unless given.
    """

    def __init__(
        self, k: torch.Tensor, sizes: Sequence[int], dtype: torch.dtype | None = None
    ) -> None:
        self.k, self.sizes = k, sizes
        elements = math.prod(self._shape(max(sizes)))
        self.pair = list(k.new_empty(2, elements, dtype=dtype))

    def next(self, source: int) -> torch.Tensor:
        """For what belongs to rank `source`, in the place of the last but one."""
        self.pair.reverse()
        shape = self._shape(self.sizes[source])
        return self.pair[0][: math.prod(shape)].view(shape)

    def _shape(self, tokens: int) -> tuple[int, ...]:
        return 2, *self.k.shape[:2], tokens, self.k.shape[3]


def travelling(
    k: torch.Tensor, v: torch.Tensor, sizes: Sequence[int], members: Members
) -> Iterator[tuple[int, torch.Tensor]]:
    """(rank that they come from, its keys and values), this rank's own first: (2, B, K, T_s, D).

    The next ones are received while the caller computes with these, so they may be read only, and
    only until the next are asked for. Sends n - 1 blocks per rank.
    """
    n, r = len(members), members.rank
    buffers = Buffers(k, sizes)
    block = torch.stack([k, v], out=buffers.next(r))
    for step in range(n):
        source, passing, coming = (r - step) % n, [], block
        if step < n - 1:
            coming = buffers.next((source - 1) % n)
            passing = members.start_exchange(block, (r + 1) % n, coming, (r - 1) % n)
        yield source, block
        wait_for(passing)
        block = coming


def wait_for(works: Sequence[dist.Work]) -> None:
    """In a function of its own, since a name that stays behind keeps a message's buffer alive."""
    for work in works:
        work.wait()
