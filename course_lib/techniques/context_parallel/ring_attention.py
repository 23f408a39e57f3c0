"""Ring attention: queries stay, keys and values travel round the ring of ranks.

Every rank holds T/n tokens. At step s, rank r attends with its queries to the keys of rank r - s,
and merges what comes out with what it has (merge.py). While it computes, these keys are on their
way to rank r + 1, and the next ones come in from rank r - 1. No rank ever holds more than two
blocks of keys beside its own, however long the sequence is:

    step          0     1     2     3
    rank 0 has    0     3     2     1         of the keys and values
    rank 1 has    1     0     3     2
    rank 2 has    2     1     0     3
    rank 3 has    3     2     1     0

Sent per rank, forward: (n-1)/n of the keys and values of the whole sequence, 2 B K T D elements.
Backward they travel again, and their gradients with them: see ring_backward.py.

Liu et al., "Ring attention with blockwise transformers for near-infinite context", arXiv 2310.01889
(2023). The causal mask makes some blocks empty, which are skipped; split.py has the splits that
leave every rank the same work.
"""

import torch
from torch.profiler import record_function

from .attention import Setting, in_two_passes, over_split_sequences
from .local_attention import add_keys
from .merge import nothing_yet
from .ring_backward import ring_backward
from .ring_exchange import travelling


@over_split_sequences
def ring_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, setting: Setting
) -> torch.Tensor:
    """By a ring of keys and values forward, and backward by another one, with their gradients."""
    return in_two_passes(q, k, v, setting, ring_forward, ring_backward)


def ring_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, setting: Setting
) -> tuple[torch.Tensor, torch.Tensor]:
    """Out (B, H, T_r, D) and lse (B, H, T_r), in float32 at least."""
    out, lse = nothing_yet(q)
    sizes = setting.sight.split.sizes
    for source, (keys, values) in travelling(k, v, sizes, setting.members):
        with record_function(f"attention to the keys of rank {source}"):
            add_keys(out, lse, q, keys, values, source, setting)
    return out, lse
