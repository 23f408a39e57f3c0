"""The task: sort five digits. Made here, learnt in a minute, and anyone can see whether it worked.

An example is a row of digits followed by the same digits in order. The model reads all but the last
and predicts each next digit; only the predictions of the sorted half count.

    tokens    3 1 4 1 5 1 1 3 4
    targets   . . . . 1 1 3 4 5
"""

from collections.abc import Callable, Iterator

import torch

LENGTH = 5
SYMBOLS = 10
IGNORED = -100  # what torch's cross_entropy leaves out


def examples(count: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """`count` rows of tokens and of targets, each (count, 2 * LENGTH - 1)."""
    digits = torch.randint(SYMBOLS, (count, LENGTH), generator=generator)
    row = torch.cat([digits, digits.sort(dim=1).values], dim=1)
    targets = row[:, 1:].clone()
    targets[:, : LENGTH - 1] = IGNORED
    return row[:, :-1].contiguous(), targets


def batches(
    steps: int, batch_size: int, seed: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The same `steps` batches on every rank; each rank takes its part of every batch."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        yield examples(batch_size, generator)


def solved_share(
    model: Callable[[torch.Tensor], torch.Tensor], count: int = 200, seed: int = 1
) -> float:
    """The share of `count` new rows that the model sorts without a mistake, digit by digit."""
    tokens, targets = examples(count, torch.Generator().manual_seed(seed))
    written = tokens[:, :LENGTH]
    with torch.no_grad():
        for _ in range(LENGTH):
            best = model(written)[:, -1].argmax(dim=-1, keepdim=True)
            written = torch.cat([written, best], dim=1)
    return (written[:, LENGTH:] == targets[:, LENGTH - 1 :]).all(dim=1).float().mean().item()
