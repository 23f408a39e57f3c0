"""The parts of a GPT over t ranks, named and ordered as in one process.

All ranks have the same (B, T, C) between the parts; with `sequence_parallel`, each its own tokens
(B, T/t, C).

Shoeybi et al. 2019 (arXiv 1909.08053), figure 4; Korthikanti et al. 2022 (arXiv 2205.05198),
figure 5.

Shapes: B batch, T tokens, C hidden size, V vocabulary, t ranks of the group.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn

from .attention import ParallelAttention
from .axis import TensorAxis
from .linear import ColumnParallelLinear
from .mlp import ParallelMLP
from .random_streams import Dropout
from .sequence import token_share
from .vocabulary import (
    VocabParallelEmbedding,
    vocabulary_share,
)

Group = dist.ProcessGroup | None


class ParallelBlock(nn.Module):
    """Attention and MLP, each on a normalised copy and added to the residual stream.

    (B, T, C) to (B, T, C), the same on every rank; with `sequence_parallel`, (B, T/t, C).
    """

    def __init__(
        self,
        hidden: int,
        heads: int,
        group: Group = None,
        *,
        kv_heads: int | None = None,
        dropout: float = 0.0,
        sequence_parallel: bool = False,
    ) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(hidden)
        self.attention = ParallelAttention(
            hidden,
            heads,
            group,
            kv_heads=kv_heads,
            dropout=dropout,
            sequence_parallel=sequence_parallel,
        )
        self.norm_mlp = nn.LayerNorm(hidden)
        self.mlp = ParallelMLP(hidden, group, sequence_parallel=sequence_parallel)
        rank = TensorAxis.of(group).rank if sequence_parallel else None
        self.dropout = Dropout(dropout, rank)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.norm_attention(x)))
        return x + self.dropout(self.mlp(self.norm_mlp(x)))


class ParallelGPTEmbedding(nn.Module):
    """Token plus position: (B, T) to (B, T, C), or (B, T/t, C) with `sequence_parallel`.

    Where the tokens are some of a longer sequence (context parallelism), set `places`: it gives
    their positions in that, (1, T), on the device that it is asked for.
    """

    def __init__(
        self,
        vocab: int,
        seq: int,
        hidden: int,
        group: Group = None,
        *,
        dropout: float = 0.0,
        sequence_parallel: bool = False,
    ) -> None:
        super().__init__()
        self.axis, self.sequence_parallel = TensorAxis.of(group), sequence_parallel
        self.tokens = VocabParallelEmbedding(
            vocab, hidden, group, sequence_parallel=sequence_parallel
        )
        self.positions = nn.Embedding(seq, hidden)
        self.places: Callable[[torch.device], torch.Tensor] | None = None
        self.dropout = Dropout(dropout, self.axis.rank if sequence_parallel else None)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = self._places_of(tokens)  # (1, T)
        if self.sequence_parallel:
            positions = token_share(tokens.shape[1], self.axis).of(positions)  # (1, T/t)
        return self.dropout(self.tokens(tokens) + self.positions(positions))

    def _places_of(self, tokens: torch.Tensor) -> torch.Tensor:
        if self.places is not None:
            return self.places(tokens.device)
        return torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)


class ParallelGPTHead(nn.Module):
    """Final norm and this rank's logits: (B, T, C), or (B, T/t, C), to (B, T, V/t)."""

    def __init__(
        self, hidden: int, vocab: int, group: Group = None, *, sequence_parallel: bool = False
    ) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.projection = ColumnParallelLinear(
            hidden,
            vocab,
            group,
            bias=False,
            sequence_parallel=sequence_parallel,
            share=vocabulary_share(vocab, TensorAxis.of(group)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.projection(self.norm(x))
