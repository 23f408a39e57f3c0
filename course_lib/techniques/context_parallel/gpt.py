"""A GPT whose sequences are cut among n ranks.

Norms, matrices and MLPs look at one token at a time, so they stay as they are, whole on every rank.
Three parts have to know that tokens are elsewhere:

    positions     those in the sequence, not in what the rank holds
    attention     over the tokens of all ranks: ring, all-gather or Ulysses
    loss          a mean over the tokens of all ranks

Every rank computes a summand of each gradient, from its own tokens, so gradients are averaged over
the ranks as in data parallelism (loss.py).
"""

from collections.abc import Iterator
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn

from .attention import Attention
from .axis import ContextAxis, MakeSplit
from .loss import context_parallel_loss
from .ring_attention import ring_attention
from .split import TokenSplit, zigzag_split


class WholeGPT(Protocol):
    """A GPT of one process: `embedding.tokens` and `.positions`, then `blocks`, then `head`.

    Each block calls its `attention`, which has `heads`, `query`, `key`, `value` and `out`.
    """

    embedding: Any
    blocks: Any
    head: Any

    def parameters(self) -> Iterator[nn.Parameter]: ...


class ContextAttention(nn.Module):
    """Causal self-attention, (B, T_r, C) to (B, T_r, C), with the matrices of a whole one."""

    def __init__(self, whole: Any, axis: ContextAxis) -> None:
        super().__init__()
        self.axis = axis
        self.query, self.key, self.value, self.out = whole.query, whole.key, whole.value, whole.out
        self.head_size = self.query.out_features // whole.heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part(x).unflatten(-1, (-1, self.head_size)).transpose(1, 2)  # (B, H or K, T_r, D)
            for part in (self.query, self.key, self.value)
        )
        return self.out(self.axis.attend(q, k, v).transpose(1, 2).flatten(-2))


class ContextParallelGPT(nn.Module):
    """`model` with its sequences cut among the ranks of `group`.

    model: of one process, with the same weights on every rank; its parts are taken over, so the
        parameters are the same objects, with the same names.
    """

    def __init__(
        self,
        model: WholeGPT,
        group: dist.ProcessGroup | None = None,
        *,
        make_split: MakeSplit = zigzag_split,
        attention: Attention = ring_attention,
    ) -> None:
        super().__init__()
        self.axis = ContextAxis(group, make_split=make_split, attention=attention)
        self.embedding, self.blocks, self.head = model.embedding, model.blocks, model.head
        for block in self.blocks:
            block.attention = ContextAttention(block.attention, self.axis)

    def split_of(self, tokens: int) -> TokenSplit:
        """Which of so many tokens each rank holds."""
        return self.axis.make_split(tokens, len(self.axis.members))

    def forward(self, tokens: torch.Tensor, documents: torch.Tensor | None = None) -> torch.Tensor:
        """Logits (B, T_r, V) for this rank's tokens, of whole sequences `tokens` (B, T).

        documents: (B, T) or (T,); each then has positions of its own, as if it came alone.
        """
        self.axis.begin(tokens.shape[1], documents)
        places = self.embedding.positions(self.axis.positions(tokens.device))
        x = self.embedding.tokens(self.axis.own(tokens)) + places  # (B, T_r, C)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def loss(
        self,
        tokens: torch.Tensor,
        targets: torch.Tensor,
        documents: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Mean cross-entropy over the targets (B, T) that do not ignore theirs; the same on each.

        After backward, `average_gradients` of this module over the group.
        """
        logits = self(tokens, documents)
        return context_parallel_loss(logits, self.axis.own(targets), self.axis.group)
