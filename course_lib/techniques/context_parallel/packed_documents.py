"""Documents packed into one sequence, and padding: the numbers by which masks know them.

Long sequences are filled with documents one after the other. No token is to see another document,
so every token has the number of its own, and padding a negative one:

    tokens       a a a b b . .
    documents    0 0 0 1 1 -1 -1
    positions    0 1 2 0 1 0 1

Llama 3 trains with such a mask (arXiv 2407.21783, section 3.2).
"""

from collections.abc import Sequence

import torch


def packed_documents(lengths: Sequence[int], tokens: int) -> torch.Tensor:
    """The number of each token's document, (T,): [3, 2] in 6 tokens is 0 0 0 1 1 -1."""
    if sum(lengths) > tokens:
        raise ValueError(f"documents of {sum(lengths)} tokens do not fit into {tokens}")
    numbers = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    return torch.cat([numbers, numbers.new_full((tokens - len(numbers),), -1)])


def padding_documents(lengths: Sequence[int], tokens: int) -> torch.Tensor:
    """One document per sample, (B, T): 0 for its first tokens and -1 behind."""
    return torch.stack([packed_documents([length], tokens) for length in lengths])


def positions_in_documents(documents: torch.Tensor) -> torch.Tensor:
    """Positions (..., T) that begin anew in each document: of 0 0 0 1 1 they are 0 1 2 0 1."""
    positions = torch.arange(documents.shape[-1], device=documents.device)
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[..., 1:] = documents[..., 1:] != documents[..., :-1]
    return positions - (positions * begins).cummax(-1).values
