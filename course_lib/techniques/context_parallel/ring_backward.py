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

Held per rank, in units of B T/n D elements: q, out and their gradients, 4 H; k and v, 2 K; the keys
and values that are here and those that come, 4 K; the sums that stay, leave, come and are being
made, 8 K; and what one block adds to them, 3 K for a part of the tokens. None of it grows with n.

Liu et al., "Ring attention with blockwise transformers for near-infinite context", arXiv 2310.01889
(2023), section 3.
"""

import torch
import torch.distributed as dist
from torch.profiler import record_function

from course_lib.techniques.collectives.members import Members

from .local_attention import add_gradients
from .masks import Sight
from .merge import accumulating
from .travelling import travelling, wait_for


def ring_backward(
    grad_out: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    sight: Sight,
    members: Members,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dq (B, H, T_r, D), dk and dv (B, K, T_r, D), in float32 at least."""
    dq = torch.zeros_like(q, dtype=accumulating(q.dtype))
    sums = _TravellingSums(members)
    for source, kv in travelling(torch.stack([k, v]), sight.split.sizes, members):
        with record_function(f"gradients for the keys of rank {source}"):
            dkv = torch.zeros_like(kv, dtype=dq.dtype)  # (2, B, K, T_source, D)
            contribute(dq, dkv, grad_out, q, kv, out, lse, sight, source, scale)
        sums.add(source, dkv, sight.split.sizes)
    dk, dv = sums.home()
    return dq, dk, dv


def contribute(
    dq: torch.Tensor,
    dkv: torch.Tensor,
    grad_out: torch.Tensor,
    q: torch.Tensor,
    kv: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    sight: Sight,
    source: int,
    scale: float,
) -> None:
    """Add what this rank's queries and the keys of `source` give to each other's gradients."""
    (dk, dv), (k, v) = dkv, kv
    for block in sight.blocks(source):
        add_gradients(dq, dk, dv, grad_out, q, k, v, out, lse, block, scale)


class _TravellingSums:
    """The sums of gradients, each one step behind its block of keys."""

    def __init__(self, members: Members) -> None:
        self.members = members
        self.works: list[dist.Work] = []
        self.own = self.leaving = self.coming = torch.empty(0)

    def add(self, source: int, dkv: torch.Tensor, sizes: list[int]) -> None:
        """Add `dkv` to the sum for the keys of `source`, and pass that on without waiting."""
        n, r = len(self.members), self.members.rank
        if source == r:
            self.own = dkv
            return
        if source != (r - 1) % n:  # the sum that began on the rank before
            dkv += self._arrived()
        tokens = sizes[(source - 1) % n]
        self.leaving = dkv  # held until it is sent
        self.coming = dkv.new_empty(*dkv.shape[:-2], tokens, dkv.shape[-1])
        self.works = self.members.start_exchange(dkv, (r + 1) % n, self.coming, (r - 1) % n)

    def home(self) -> torch.Tensor:
        """All contributions to the gradients of this rank's keys and values, (2, B, K, T_r, D)."""
        return self.own + self._arrived() if len(self.members) > 1 else self.own

    def _arrived(self) -> torch.Tensor:
        wait_for(self.works)
        arrived, self.coming = self.coming, torch.empty(0)  # nobody else holds it
        return arrived
