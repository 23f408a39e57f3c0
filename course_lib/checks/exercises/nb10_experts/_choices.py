"""Which tokens choose which experts, drawn for the cases, and what becomes of them in one process.

Rank r of n has the experts r m to (r + 1) m - 1, where m of E experts are on each rank.
"""

import random
from collections.abc import Sequence

import torch


def choices(rng: random.Random, tokens: int, k: int, among: Sequence[int] | range) -> torch.Tensor:
    """(tokens, k) int64: each token chooses k different experts."""
    rows = [rng.sample(list(among), k) for _ in range(tokens)]
    return torch.tensor(rows, dtype=torch.int64).view(tokens, k)


def assignments(by_rank: Sequence[torch.Tensor], expert: int) -> list[tuple[int, int, int]]:
    """(rank, token, choice) of all that comes to an expert, in the order in which it comes."""
    return [
        (rank, token, choice)
        for rank, experts in enumerate(by_rank)
        for token, chosen in enumerate(experts.tolist())
        for choice, each in enumerate(chosen)
        if each == expert
    ]


def rows_to(experts: torch.Tensor, ranks: int, number: int) -> list[int]:
    """How many rows a rank with these choices sends to each rank."""
    owners = experts.reshape(-1) // (number // ranks)
    return torch.bincount(owners, minlength=ranks).tolist()
