"""A mixture trained for so much time, where a step lasts until its busiest expert is done.

With each expert on a rank of its own, all others wait for the busiest one. So time is counted in
steps of an even spread: a step takes as many of them as the busiest expert has even shares.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch

from .mixture_of_experts import Router, tiny_mixture_gpt
from .sorting_task import batches

EXPERTS, SENDERS = 8, 4  # of a layer; ranks among which its tokens are spread
Table = list[list[int]]  # rows that each rank sends to each expert
Balance = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class Run(NamedTuple):
    """One entry per step: when it ended, its loss, and of each layer who sent how much to whom."""

    moments: list[float]
    losses: list[float]
    loads: list[list[Table]]


def train_for(time: float, balance: Balance, factor: float) -> Run:
    """Train the same tiny GPT on the same batches until `time` is over.

    balance(logits (T, E), experts (T, 1)) is added to the loss, times `factor`, for each layer.
    """
    model = tiny_mixture_gpt(hidden=32, experts=EXPERTS, inner=32, top_k=1, balance=0.0, seed=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    routed: list[tuple[torch.Tensor, ...]] = []
    for part in model.modules():
        if isinstance(part, Router):
            part.register_forward_hook(lambda _, __, output: routed.append(output))
    run = Run([], [], [])
    moment = 0.0
    for tokens, targets in batches(int(time), 64):
        routed.clear()
        loss = model.loss(tokens, targets)
        # of each layer: logits, scores, and weights that are 0 where an expert was not chosen
        chosen = [gates.argmax(-1, keepdim=True) for _, _, gates in routed]
        extra = sum(balance(logits, c) for (logits, _, _), c in zip(routed, chosen, strict=True))
        optimizer.zero_grad()
        (loss + factor * extra).backward()
        optimizer.step()
        tables = [_rows_by_rank(each) for each in chosen]
        moment += busiest(tables)
        if moment > time:
            break
        run.moments.append(moment)
        run.losses.append(loss.item())
        run.loads.append(tables)
    return run


def busiest(tables: list[Table]) -> float:
    """Rows of the busiest expert as a multiple of an even share, the mean over layers."""
    loads = [torch.tensor(table).sum(0) for table in tables]
    return sum(float(load.max() / load.float().mean()) for load in loads) / len(loads)


def _rows_by_rank(chosen: torch.Tensor) -> Table:
    parts = chosen.flatten().chunk(SENDERS)
    return [torch.bincount(part, minlength=EXPERTS).tolist() for part in parts]
