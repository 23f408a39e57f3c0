"""Random numbers that must agree between the ranks of a layer, and some that must not.

    region                                        dropout masks      initial values
    whole on every rank (residuals, norms)        the same           the same
    split by heads, columns, vocabulary           differ             differ
    split by tokens (sequence parallel)           differ             -

With masks that differ where tensors are whole, the ranks would go on with different "copies" of a
tensor. With masks that agree where tensors are split, all heads would drop the same elements.

All ranks of the group start from the same seed (`torch.manual_seed(seed)`, with another seed for
each data-parallel replica), and what is whole simply draws from torch's default generator. What is
split draws inside `separate_stream`: it takes its seed from the default generator, which agrees,
plus the group rank, which does not. So everything follows from the default generator, and a
forward pass that is repeated from its saved state (activation checkpointing) drops the same again.

Megatron-LM keeps two generators for the same purpose (`CudaRNGStatesTracker`; Shoeybi et al. 2019,
appendix B.2).
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

_SEEDS = 1 << 62


@contextmanager
def separate_stream(rank: int) -> Iterator[None]:
    """Inside, torch draws numbers of its own for each `rank`; afterwards, it goes on as before."""
    seed = int(torch.randint(_SEEDS, ()))
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed + rank)
        yield


class Dropout(nn.Module):
    """Zero each element with probability p, and scale the rest by 1 / (1 - p).

    rank: the group rank where each rank has its own part of the tensor; None where all have the
        same tensor and must drop the same elements.

    Keeps one byte per element for backward.
    """

    def __init__(self, p: float, rank: int | None = None) -> None:
        super().__init__()
        if not 0 <= p < 1:
            raise ValueError(f"the probability to drop an element must be in [0, 1), not {p}")
        self.p, self.rank = p, rank

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0:
            return x
        if self.rank is None:
            return self._drop(x)
        with separate_stream(self.rank):
            return self._drop(x)

    def _drop(self, x: torch.Tensor) -> torch.Tensor:
        kept = torch.empty_like(x, dtype=torch.bool).bernoulli_(1 - self.p)
        return x * kept * (1 / (1 - self.p))
