"""Uneven parts: ranks that have more samples than others, and ranks that run out of them first.

    rank 0   ####  ####  ##      10 samples in batches of 4
    rank 1   ####  ####           8

Two things go wrong. In the third step rank 0 waits for an all-reduce that rank 1 never calls. And
where two ranks do have batches of 4 and 2, the mean of their means is not the mean of six samples.

One small all-reduce before each step mends both: everyone says whether it has a batch, and of how
many samples. If nobody has one, the epoch is over. A rank without samples joins the step with
zeros. The others multiply their mean loss by `share`, so that the average over ranks is the mean
over samples:

    share_r = n b_r / sum(b)        mean_r(share_r mean_loss_r) = sum of losses / samples

PyTorch's `Join` (torch.distributed.algorithms.join) makes the same agreement, without the weights.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist


def agree(
    batches: Iterable[Any],
    group: dist.ProcessGroup | None = None,
    device: torch.device | str = "cpu",
) -> Iterator[tuple[Any, float]]:
    """Yield (batch, share) as long as any rank of the group has a batch; (None, 0.0) without one.

    The samples of a batch are counted by its first tensor: batch[0].shape[0]. All ranks must take
    every step to its end, as each step begins with an all-reduce.

        for batch, share in agree(my_batches):
            if batch is None:
                model.backward_without_data()
            else:
                inputs, targets = batch
                (share * loss(model(inputs), targets)).backward()
            optimizer.step()
    """
    remaining = iter(batches)
    while True:
        batch = next(remaining, None)
        own = 0 if batch is None else batch[0].shape[0]
        said = torch.tensor([batch is not None, own], dtype=torch.int64, device=device)
        dist.all_reduce(said, group=group)
        with_a_batch, total = said.tolist()
        if not with_a_batch:
            return
        # The mean over no samples is nan: an empty batch is none.
        yield batch if own else None, dist.get_world_size(group) * own / max(1, total)
