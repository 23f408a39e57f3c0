"""The backward pass of ring attention: a second ring, for the gradients of keys and values.

Keys and values travel as they did forward. Rank r computes at step s what its queries contribute to
the gradients of the keys of rank r - s, whose owner is elsewhere. So a sum of gradients travels
behind each block of keys, one step later, and everyone adds:

    step                  0      1            2            3
    rank r has keys of    r      r-1          r-2          r-3
    and adds to           (own)  a new sum    the sum that rank r-1 has passed on

After the last step each sum is one rank away from its owner. It goes home, and meets what the owner
has computed at step 0, which never left. So gradients make n - 1 hops, as in a reduce-scatter, and
not n. They are summed, and travel, in float32 at least.

Sent per rank: (n-1)/n of 2 B K T D elements twice, once as keys and values, once as gradients. Both
rings pass on while the rank computes the next block.

Liu et al., "Ring attention with blockwise transformers for near-infinite context", arXiv 2310.01889
(2023), section 3.
"""

import torch
import torch.distributed as dist
from torch.profiler import record_function

from course_lib.techniques.collectives.members import Members

from .attention import Setting
from .local_attention import Summand, add_up, summands
from .merge import accumulating
from .ring_exchange import Buffers, travelling, wait_for


def ring_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    setting: Setting,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dq (B, H, T_r, D), dk and dv (B, K, T_r, D), in float32 at least."""
    dq = torch.zeros_like(q, dtype=accumulating(q.dtype))
    sizes = setting.sight.split.sizes
    sums = _TravellingSums(Buffers(k, sizes, dq.dtype), setting.members)

    def from_keys_of(source: int, keys: torch.Tensor, values: torch.Tensor) -> list[Summand]:
        with record_function(f"gradients for the keys of rank {source}"):
            return list(summands(dq, grad_out, q, keys, values, out, lse, source, setting))

    for source, (keys, values) in travelling(k, v, sizes, setting.members):
        sums.add(source, from_keys_of(source, keys, values))
    dk, dv = sums.home()
    return dq, dk, dv


class _TravellingSums:
    """The sums of gradients, each one step behind its block of keys.

    What is to be added is computed before the sum is waited for, which comes in meanwhile.
    """

    def __init__(self, buffers: Buffers, members: Members) -> None:
        self.buffers, self.members = buffers, members
        self.works: list[dist.Work] = []
        self.own: list[Summand] = []
        self.coming = torch.empty(0)

    def add(self, source: int, found: list[Summand]) -> None:
        """Add to the sum for the keys of `source`, and pass that on without waiting."""
        n, r = len(self.members), self.members.rank
        if source == r:
            self.own = found
            return
        begins_here = source == (r - 1) % n
        sums = self.buffers.next(source).zero_() if begins_here else self._arrived()
        add_up(sums, found)
        self.coming = self.buffers.next((source - 1) % n)
        self.works = self.members.start_exchange(sums, (r + 1) % n, self.coming, (r - 1) % n)

    def home(self) -> torch.Tensor:
        """All contributions to the gradients of this rank's keys and values, (2, B, K, T_r, D)."""
        alone = len(self.members) == 1
        sums = self.buffers.next(self.members.rank).zero_() if alone else self._arrived()
        add_up(sums, self.own)
        return sums

    def _arrived(self) -> torch.Tensor:
        wait_for(self.works)
        return self.coming
