"""A GPT (Radford et al. 2018, 2019), as small as one that still learns something.

Written for being cut up: query, key and value are separate matrices, and every part that a later
notebook shards or moves to another device is a module of its own.

Shapes: B batch, T tokens, C hidden size, H heads, D = C / H head size, V vocabulary.
"""

import torch
import torch.nn.functional as F
from torch import nn

from .sorting_task import IGNORED, LENGTH, SYMBOLS


class Attention(nn.Module):
    """Causal self-attention with H heads."""

    def __init__(self, hidden: int, heads: int):
        super().__init__()
        if hidden % heads:
            raise ValueError(
                f"the hidden size ({hidden}) must be a multiple of the heads ({heads})"
            )
        self.heads = heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)  # (B, H, T, D)
            for part in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, D)
        return self.out(mixed.transpose(1, 2).flatten(-2))  # (B, T, C)


class MLP(nn.Module):
    """Two layers with a GeLU between them, four times as wide inside."""

    def __init__(self, hidden: int):
        super().__init__()
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))  # (B, T, C) -> (B, T, 4C) -> (B, T, C)


class Block(nn.Module):
    """Attention and MLP, each on a normalised copy and added to the residual stream."""

    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.norm_attention = nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads)
        self.norm_mlp = nn.LayerNorm(hidden)
        self.mlp = MLP(hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class Embedding(nn.Module):
    """Token plus position."""

    def __init__(self, vocab: int, seq: int, hidden: int):
        super().__init__()
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(seq, hidden)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[-1], device=tokens.device)
        return self.tokens(tokens) + self.positions(positions)  # (B, T) -> (B, T, C)


class Head(nn.Module):
    """Final norm and the projection to logits."""

    def __init__(self, hidden: int, vocab: int):
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.projection = nn.Linear(hidden, vocab, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.projection(self.norm(x))  # (B, T, C) -> (B, T, V)


class TinyGPT(nn.Module):
    """`embedding`, then `blocks`, then `head`; with `tied`, input and output share one matrix."""

    def __init__(
        self, vocab: int, seq: int, *, layers: int, hidden: int, heads: int, tied: bool = False
    ):
        super().__init__()
        self.embedding = Embedding(vocab, seq, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.head = Head(hidden, vocab)
        self.apply(_initialise)
        if tied:
            self.head.projection.weight = self.embedding.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits (B, T, V) of the token after each of `tokens` (B, T)."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy over the positions that `targets` (B, T) does not ignore."""
        return token_loss(self(tokens), targets)


def token_loss(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of logits (B, T, V) against targets (B, T)."""
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)


def _initialise(module: nn.Module) -> None:
    # GPT-2: normal with 0.02 for all matrices, biases zero.
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def tiny_gpt(
    *,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    tied: bool = False,
    seed: int | None = None,
) -> TinyGPT:
    """A `TinyGPT` of the right size for `sorting.batches`.

    With `seed` the weights are the same wherever it is called, and torch's own random state stays
    as it was; without it, they come from that state.
    """
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        return TinyGPT(
            SYMBOLS, 2 * LENGTH - 1, layers=layers, hidden=hidden, heads=heads, tied=tied
        )
