"""A whole GPT over t ranks.

    part         layers                            all-reduces of activations
    embedding    tokens by vocabulary              1 forward (g)
    block        attention by heads, then MLP      2 forward (g), 2 backward (f)
    head         logits by vocabulary              1 backward (f)
    loss         from the parts of the logits      2 forward, of 3 numbers per token

All ranks of the group get the same tokens and targets, and compute the same loss. `embedding`,
`blocks` and `head` take and return tensors, so they can be stages of a pipeline:
`nn.Sequential(model.embedding, *model.blocks, model.head)` computes the logits.

Shoeybi et al. 2019 (arXiv 1909.08053), figure 4.

Shapes: B batch, T tokens, V vocabulary, t ranks of the group.
"""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Protocol, Self

import torch
from torch import nn

from .axis import TensorAxis, gather_parts
from .block import (
    Group,
    ParallelBlock,
    ParallelGPTEmbedding,
    ParallelGPTHead,
)
from .random_streams import separate_stream
from .state import load_whole, shares_of
from .vocabulary import vocab_parallel_loss, vocabulary_share


class WholeGPT(Protocol):
    """A GPT of one process: `embedding.tokens` and `.positions`, then `blocks`, then `head`.

    Blocks have `attention.heads` and the weights of `ParallelBlock`, `head` has `projection`.
    """

    embedding: Any
    blocks: Any
    head: Any

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def state_dict(self) -> dict[str, Any]: ...


class TensorParallelGPT(nn.Module):
    """`embedding`, then `blocks`, then `head`; with `tied`, input and output share one matrix.

    Build it after the same `torch.manual_seed` on all ranks of `group` (see random_streams).
    sequence_parallel: T must be a multiple of t, and `sum_replicated_gradients` is called after
        backward.
    """

    def __init__(
        self,
        vocab: int,
        seq: int,
        *,
        layers: int,
        hidden: int,
        heads: int,
        kv_heads: int | None = None,
        tied: bool = False,
        dropout: float = 0.0,
        sequence_parallel: bool = False,
        group: Group = None,
    ) -> None:
        super().__init__()
        self.vocab, self.axis = vocab, TensorAxis.of(group)
        split = {"sequence_parallel": sequence_parallel}
        self.embedding = ParallelGPTEmbedding(vocab, seq, hidden, group, dropout=dropout, **split)
        self.blocks = nn.ModuleList(
            ParallelBlock(hidden, heads, group, kv_heads=kv_heads, dropout=dropout, **split)
            for _ in range(layers)
        )
        self.head = ParallelGPTHead(hidden, vocab, group, **split)
        _initialise(self)
        if tied:
            self.head.projection.weight = self.embedding.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """This rank's logits (B, T, V/t) of the token after each of `tokens` (B, T)."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy over the positions that `targets` (B, T) does not ignore."""
        return self.token_loss(self(tokens), targets)

    def token_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The same from the logits of `forward`: what the last stage of a pipeline computes."""
        return vocab_parallel_loss(logits, targets, self.vocab, self.axis.group)

    @torch.no_grad()
    def whole_logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """All logits (B, T, V) on every rank, to write text with; training never needs them."""
        share = vocabulary_share(self.vocab, self.axis)
        return gather_parts(self(tokens), replace(share, dim=-1), self.axis)

    @classmethod
    def from_model(
        cls,
        model: WholeGPT,
        group: Group = None,
        *,
        dropout: float = 0.0,
        sequence_parallel: bool = False,
    ) -> Self:
        """The parts of a GPT of one process, with its sizes, weights and type.

        model: the same on every rank.
        """
        made = cls.shaped_like(
            model, group, dropout=dropout, sequence_parallel=sequence_parallel
        ).to(model.embedding.tokens.weight)
        load_whole(made, model.state_dict())
        return made

    @classmethod
    def shaped_like(
        cls,
        model: WholeGPT,
        group: Group = None,
        *,
        dropout: float = 0.0,
        sequence_parallel: bool = False,
    ) -> Self:
        """The parts of a GPT with the sizes of `model`, and weights of their own."""
        words, positions = model.embedding.tokens, model.embedding.positions
        return cls(
            words.num_embeddings,
            positions.num_embeddings,
            layers=len(model.blocks),
            hidden=words.embedding_dim,
            heads=model.blocks[0].attention.heads,
            tied=model.head.projection.weight is words.weight,
            dropout=dropout,
            sequence_parallel=sequence_parallel,
            group=group,
        )


@torch.no_grad()
def _initialise(model: nn.Module) -> None:
    # GPT-2: normal with 0.02 for all matrices; biases are zero already. Every part of a matrix is
    # drawn from a stream of its own, so the parts differ, and what is whole agrees.
    shares = shares_of(model)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            with separate_stream(shares[name].index) if name in shares else nullcontext():
                parameter.normal_(std=0.02)
