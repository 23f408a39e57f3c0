"""Capacity: at most so many tokens for an expert, and what is above is dropped.

    capacity = ceil(factor * T k / E)        T k / E is what each would get if all were even

With a capacity, every rank sends exactly that many rows to every expert, padded with zeros: all
shapes are known before a token is seen, as compilers for TPUs want it, and no expert can have more
work than the others. The price: rows of zeros travel and are multiplied, and a choice that finds
its expert full adds nothing to its token, which goes on in the residual stream as it is.

GShard serves the first choices of all tokens before any second one, each in the order of the tokens
(Lepikhin et al., arXiv 2006.16668, section 2.2, algorithm 1). Switch does well with low factors, 1
to 1.25 (Fedus et al., arXiv 2101.03961, section 2.3). MegaBlocks drops nothing (Gale et al., arXiv
2211.15841): that is `dispatch.plan_dispatch`.

The capacity counts per rank: each rank's T tokens have room for `capacity` at each expert.
"""

import math

import torch
import torch.nn.functional as F


def capacity_of(tokens: int, experts: int, top_k: int, factor: float) -> int:
    """Rows that each expert has room for, of `tokens` with `top_k` choices each."""
    if not factor > 0:
        raise ValueError(f"a capacity factor has to be more than 0, and is {factor}")
    return math.ceil(factor * tokens * top_k / experts)


def within_capacity(experts: torch.Tensor, num_experts: int, capacity: int) -> torch.Tensor:
    """Which choices (T, k) are served when each expert has room for `capacity`: booleans (T, k)."""
    return places(experts, num_experts) < capacity


def places(experts: torch.Tensor, num_experts: int) -> torch.Tensor:
    """The place, from 0, of each choice (T, k) in the queue of its expert: (T, k)."""
    queue = experts.T.flatten()  # (k T,): first choices first
    chosen = F.one_hot(queue, num_experts)  # (k T, E)
    before = chosen.cumsum(0) - chosen
    return before.gather(1, queue.unsqueeze(1)).view(experts.T.shape).T
