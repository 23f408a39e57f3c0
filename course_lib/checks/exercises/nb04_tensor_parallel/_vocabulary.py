"""What the exercises vocab_embedding and vocab_cross_entropy share."""

import random

import torch


def symbols(rng: random.Random, vocab: int, ranks: int, shape: tuple[int, int]) -> torch.Tensor:
    """Symbols of every rank, the first and the last of its range among them."""
    size = vocab // ranks
    edges = [symbol for r in range(ranks) for symbol in (r * size, (r + 1) * size - 1)]
    count = shape[0] * shape[1]
    found = (edges + [rng.randrange(vocab) for _ in range(count)])[:count]
    rng.shuffle(found)
    return torch.tensor(found).view(shape)
