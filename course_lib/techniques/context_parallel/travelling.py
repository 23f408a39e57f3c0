"""Every rank's block in turn, passed round the ring while the one before is used."""

from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist

from course_lib.techniques.collectives.members import Members


def travelling(
    block: torch.Tensor, sizes: Sequence[int], members: Members
) -> Iterator[tuple[int, torch.Tensor]]:
    """(rank that it comes from, its block), this rank's own first.

    block: (..., T_r, D), and `sizes` has every rank's T_r. The next block is received while the
    caller computes with this one, so a block may be read only, and only until the next is asked
    for. Sends n - 1 blocks per rank.
    """
    n, r = len(members), members.rank
    for step in range(n):
        source, passing, coming = (r - step) % n, [], None
        if step < n - 1:
            tokens = sizes[(source - 1) % n]
            coming = block.new_empty(*block.shape[:-2], tokens, block.shape[-1])
            passing = members.start_exchange(block, (r + 1) % n, coming, (r - 1) % n)
        yield source, block
        wait_for(passing)
        if coming is not None:
            block = coming


def wait_for(works: Sequence[dist.Work]) -> None:
    """In a function of its own, since a name that stays behind keeps a message's buffer alive."""
    for work in works:
        work.wait()
