"""The router: which experts a token goes to, and how much each of them has to say.

    x (T, C) --weight--> logits (T, E) --gate--> scores (T, E) --the k largest--> experts, weights

A layer of E experts computes, for each token, only the k that its router chooses, and adds up their
outputs times their weights. So parameters grow with E and computation with k.

    gate       scores                  used by
    softmax    sum to 1 over all E     Shazeer et al. 2017, GShard, Switch, Mixtral, DeepSeek-V2
    sigmoid    each by itself          DeepSeek-V3

The choice has no gradient; the weights have. With k > 1 the k scores are divided by their sum, as
in GShard, Mixtral and DeepSeek-V3. With k = 1 the weight is the score itself, as in Switch: divided
by itself it would always be 1, and the router would learn nothing.

Logits are computed in float32 at least: rounding them moves tokens to other experts (Fedus et al.,
"Switch Transformers", arXiv 2101.03961, section 2.4).

Shazeer et al., "Outrageously large neural networks", arXiv 1701.06538 (2017), section 2.1; Lepikhin
et al., "GShard", arXiv 2006.16668 (2020), section 2.2; Jiang et al., "Mixtral of experts", arXiv
2401.04088 (2024), section 2.1; DeepSeek-AI, "DeepSeek-V3", arXiv 2412.19437 (2024), section 2.1.2.

Shapes: T tokens, C hidden size, E experts, k choices of a token.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

GATES = ("softmax", "sigmoid")


class Routing(NamedTuple):
    """Where T tokens go.

    experts: (T, k), the chosen ones, best first; weights: (T, k), what their outputs count.
    scores, logits: (T, E), of all experts.
    """

    experts: torch.Tensor
    weights: torch.Tensor
    scores: torch.Tensor
    logits: torch.Tensor

    @property
    def counts(self) -> torch.Tensor:
        """How many of these tokens chose each expert: (E,), T k in all."""
        return torch.bincount(self.experts.flatten(), minlength=self.scores.shape[-1])

    def detach(self) -> "Routing":
        """The same without its history."""
        return Routing(*(tensor.detach() for tensor in self))


def route(
    logits: torch.Tensor, top_k: int, gate: str = "softmax", bias: torch.Tensor | None = None
) -> Routing:
    """Choose `top_k` experts for each token from its logits (T, E).

    bias: (E,), added to the scores for the choice only; see load_balancing.update_bias.

    Of equal scores the expert of the lower number comes first, on every rank and in one process.
    """
    if not 1 <= top_k <= logits.shape[-1]:
        raise ValueError(f"{top_k} of {logits.shape[-1]} experts cannot be chosen for a token")
    if gate not in GATES:
        raise ValueError(f"the gate {gate!r} is none of {', '.join(GATES)}")
    scores = logits.softmax(-1) if gate == "softmax" else logits.sigmoid()
    wanted = scores.detach() if bias is None else scores.detach() + bias
    experts = wanted.sort(dim=-1, descending=True, stable=True).indices[:, :top_k]
    weights = scores.gather(-1, experts)
    if top_k > 1:
        weights = weights / weights.sum(-1, keepdim=True)
    return Routing(experts, weights, scores, logits)


class Router(nn.Module):
    """(T, C) to the `Routing` of these tokens; `weight` is (E, C).

    bias: (E,), zeros until `load_balancing.update_bias` moves them; saved with the weights.
    """

    bias: torch.Tensor

    def __init__(self, hidden: int, experts: int, top_k: int = 2, gate: str = "softmax") -> None:
        super().__init__()
        self.top_k, self.gate = top_k, gate
        self.weight = nn.Parameter(torch.empty(experts, hidden))
        self.register_buffer("bias", torch.zeros(experts))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: torch.Tensor) -> Routing:
        precise = torch.promote_types(x.dtype, torch.float32)
        logits = F.linear(x.to(precise), self.weight.to(precise))
        return route(logits, self.top_k, self.gate, self.bias)
