"""Which samples a rank reads: every rank its own part of one order, a new order every epoch.

    epoch 0, order 3 0 4 1 2      rank 0: 3 4 2      rank 1: 0 1

All ranks draw the same order, from a generator with the same seed, and take every n-th sample of
it. The seed depends on the epoch: without `set_epoch` each epoch would have the same order, and so
the same batches.

torch.utils.data.DistributedSampler makes all parts equally long, by repeating samples or by
dropping some. Here that is a choice: "keep" lets parts differ by one sample, so that each sample
counts once (and steps need the agreement of `uneven_inputs.py`).
"""

import math
from collections.abc import Iterator

import torch
from torch.utils.data import Sampler

UNEVEN = ("keep", "pad", "drop")


class ShardSampler(Sampler[int]):
    """Indices of this rank's samples, for a `torch.utils.data.DataLoader`.

    samples: length of the data set. uneven: what happens to samples that `world_size` does not
    divide; "pad" repeats some from the beginning, "drop" leaves the last ones out.
    """

    def __init__(
        self,
        samples: int,
        rank: int,
        world_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        uneven: str = "keep",
    ):
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} in a world of {world_size} ranks")
        if samples < 1:
            raise ValueError(f"a data set of {samples} samples")
        if uneven not in UNEVEN:
            raise ValueError(f"uneven = {uneven!r}; there are {', '.join(UNEVEN)}")
        self.samples, self.rank, self.world_size = samples, rank, world_size
        self.shuffle, self.seed, self.uneven = shuffle, seed, uneven
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of this epoch; call it on every rank before each."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = list(range(self.samples))
        if self.shuffle:
            # A generator of its own: torch's global one differs between ranks, and stays as it was.
            generator = torch.Generator().manual_seed(self.seed + self.epoch)
            order = torch.randperm(self.samples, generator=generator).tolist()
        if self.uneven == "drop":
            order = order[: self.samples - self.samples % self.world_size]
        elif self.uneven == "pad":
            whole = self.world_size * math.ceil(self.samples / self.world_size)
            order = (order * math.ceil(whole / self.samples))[:whole]
        return iter(order[self.rank :: self.world_size])

    def __len__(self) -> int:
        if self.uneven == "keep":
            return len(range(self.rank, self.samples, self.world_size))
        if self.uneven == "drop":
            return self.samples // self.world_size
        return math.ceil(self.samples / self.world_size)
