"""Balancing: tokens for every expert, so that no rank waits for the one with the favourite.

Left alone, a router starves most of its experts: those that are chosen learn, and are chosen again
(Shazeer et al. 2017, section 4). Three ways to prevent that:

    load-balancing loss    E sum_e f_e P_e, with f_e the share of choices that fell on expert e and
                           P_e its mean score. Least, 1, when both are even. f has no gradient; P
                           pushes down the scores of experts that have much (Switch, section 2.2)
    z-loss                 mean of logsumexp(logits)^2: keeps logits small, so that routing stays
                           stable in 16 bits (ST-MoE, equation 5)
    bias                   no loss: after each step the choice, and only the choice, is biased
                           against experts that had more than the mean (DeepSeek-V3, section 2.1.2)

f over the tokens of one rank balances each rank's tokens by themselves, which is more than is
needed. Give `counts` of all ranks (`total_counts`), and the mean over the ranks of their losses is
the loss of one process with all tokens.

Fedus et al., "Switch Transformers", arXiv 2101.03961 (2021); Zoph et al., "ST-MoE", arXiv
2202.08906 (2022); DeepSeek-AI, "DeepSeek-V3", arXiv 2412.19437 (2024); Wang et al.,
"Auxiliary-loss-free load balancing strategy for mixture-of-experts", arXiv 2408.15664 (2024), which
also measures by `max_violation`.
"""

import torch
import torch.distributed as dist

from .router import Routing

BIAS_SPEED = 0.001  # of DeepSeek-V3, section 4.2


def load_balancing_loss(routing: Routing, counts: torch.Tensor | None = None) -> torch.Tensor:
    """E sum_e f_e P_e, a scalar: 1 where all is even, up to E / k where k experts get everything.

    counts: (E,), of more tokens than these; only P, which the gradient goes through, is of these.
    Scores that do not sum to 1 (sigmoid) are made to, as in DeepSeek-V3, equation 19.
    """
    counts = routing.counts if counts is None else counts
    shares = routing.scores / routing.scores.sum(-1, keepdim=True)  # (T, E)
    fractions = counts.to(shares.dtype) / counts.sum().clamp(min=1)
    mean = shares.sum(0) / max(len(shares), 1)  # of no tokens: zeros, with a history
    return len(counts) * (fractions * mean).sum()


def z_loss(logits: torch.Tensor) -> torch.Tensor:
    """The mean over the tokens of logsumexp(logits)^2, a scalar, of logits (T, E)."""
    return logits.logsumexp(-1).square().sum() / max(len(logits), 1)


def total_counts(counts: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """The counts (E,) of all ranks of `group`, on each of them: one all-reduce of 8 E bytes."""
    total = counts.clone()
    dist.all_reduce(total, group=group)
    return total


@torch.no_grad()
def update_bias(bias: torch.Tensor, counts: torch.Tensor, speed: float = BIAS_SPEED) -> None:
    """Move `bias` (E,) in place: up by `speed` where an expert had less than the mean, else down.

    counts: (E,), of a whole step: of all ranks and all microbatches.
    """
    load = counts.to(bias.dtype)
    bias += speed * torch.sign(load.mean() - load)


def max_violation(counts: torch.Tensor) -> float:
    """(largest - mean) / mean of counts (E,): 0 if even, E - 1 if one expert has all."""
    load = counts.double()
    return ((load.max() - load.mean()) / load.mean()).item()
