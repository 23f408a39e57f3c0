"""A GPT whose blocks have a mixture of experts instead of an MLP, in one process.

What expert parallelism has to equal, so it is written to be checked by reading: every expert
computes every token, and what a token's router did not choose counts zero. That is E / k times the
work of a mixture that leaves it out.

Shapes: B batch, T tokens, C hidden size, E experts, F width of an expert.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from .sorting_task import LENGTH, SYMBOLS
from .tiny_gpt import TinyGPT, token_loss


class Router(nn.Module):
    """Scores and gates (N, E) of N tokens: a gate is the weight of an expert, 0 if not chosen.

    gate: "softmax", over all experts, or "sigmoid". bias: (E,), added for the choice only.
    """

    bias: torch.Tensor

    def __init__(self, hidden: int, experts: int, top_k: int, gate: str):
        super().__init__()
        self.top_k, self.gate = top_k, gate
        self.weight = nn.Parameter(torch.empty(experts, hidden).normal_(std=0.02))
        self.register_buffer("bias", torch.zeros(experts))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """logits, scores and gates of x (N, C)."""
        logits = F.linear(x, self.weight)
        scores = logits.softmax(-1) if self.gate == "softmax" else logits.sigmoid()
        ranked = (scores + self.bias).argsort(dim=-1, descending=True, stable=True)
        chosen = torch.zeros_like(scores).scatter(-1, ranked[:, : self.top_k], 1.0)
        gates = scores * chosen
        if self.top_k > 1:
            gates = gates / gates.sum(-1, keepdim=True)
        return logits, scores, gates


class Experts(nn.Module):
    """E MLPs: (N, C) to what each makes of each token, (E, N, C)."""

    def __init__(self, experts: int, hidden: int, inner: int):
        super().__init__()
        self.up = nn.Parameter(torch.empty(experts, inner, hidden).normal_(std=0.02))
        self.down = nn.Parameter(torch.empty(experts, hidden, inner).normal_(std=0.02))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.gelu(x @ self.up.mT) @ self.down.mT


class SharedExpert(nn.Module):
    """The expert of all tokens."""

    def __init__(self, hidden: int, inner: int):
        super().__init__()
        self.up = nn.Linear(hidden, inner)
        self.down = nn.Linear(inner, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(x)))


class Mixture(nn.Module):
    """(..., C) to (..., C): `top_k` experts for each token, and a shared one of width `shared`.

    balance, z: coefficients of the load-balancing and the z-loss, whose sum with these is
    `extra_loss` after each call.
    """

    def __init__(
        self,
        hidden: int,
        experts: int,
        top_k: int = 2,
        *,
        inner: int | None = None,
        shared: int = 0,
        gate: str = "softmax",
        balance: float = 0.0,
        z: float = 0.0,
    ):
        super().__init__()
        self.router = Router(hidden, experts, top_k, gate)
        self.experts = Experts(experts, hidden, inner or 4 * hidden)
        self.shared = SharedExpert(hidden, shared) if shared else None
        self.balance, self.z = balance, z
        self.extra_loss = torch.zeros(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, -2)
        logits, scores, gates = self.router(tokens)
        y = torch.einsum("ne,enc->nc", gates, self.experts(tokens))
        if self.shared is not None:
            y = y + self.shared(tokens)
        self.extra_loss = self._extra(logits, scores, gates > 0)
        return y.view_as(x)

    def _extra(
        self, logits: torch.Tensor, scores: torch.Tensor, chosen: torch.Tensor
    ) -> torch.Tensor:
        fractions = chosen.to(scores.dtype).sum(0) / chosen.sum()
        mean_scores = (scores / scores.sum(-1, keepdim=True)).mean(0)
        balance = len(fractions) * (fractions * mean_scores).sum()
        return self.balance * balance + self.z * logits.logsumexp(-1).square().mean()


class TinyMixtureGPT(TinyGPT):
    """A `TinyGPT` with a `Mixture` in each block, of the same options."""

    def __init__(
        self,
        vocab: int,
        seq: int,
        *,
        layers: int,
        hidden: int,
        heads: int,
        experts: int,
        tied: bool = False,
        **mixture: Any,
    ):
        super().__init__(vocab, seq, layers=layers, hidden=hidden, heads=heads, tied=tied)
        for block in self.blocks:
            block.mlp = Mixture(hidden, experts, **mixture)

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy, plus what the mixtures add to it."""
        main = token_loss(self(tokens), targets)
        extra = [part.extra_loss for part in self.modules() if isinstance(part, Mixture)]
        return main + torch.stack(extra).sum()


def tiny_mixture_gpt(
    *,
    layers: int = 2,
    hidden: int = 64,
    heads: int = 4,
    experts: int = 8,
    tied: bool = False,
    seed: int | None = None,
    **mixture: Any,
) -> TinyMixtureGPT:
    """As `tiny_gpt`, with a `Mixture` of the options `mixture` in each block."""
    with torch.random.fork_rng(devices=[], enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        return TinyMixtureGPT(
            SYMBOLS,
            2 * LENGTH - 1,
            layers=layers,
            hidden=hidden,
            heads=heads,
            experts=experts,
            tied=tied,
            **mixture,
        )
