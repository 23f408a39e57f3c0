"""Which rows of a batch a replica trains on."""

from collections.abc import Sequence

import torch


def rows_of(
    replica: int, replicas: int, microbatches: int, batch: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """Of tensors (B, T), which belong together, the rows of one replica.

    Raises `ValueError` where these do not divide into microbatches, and for other shapes.
    """
    first, *others = batch
    for other in others:
        if other.shape != first.shape:
            raise ValueError(
                f"tensors of shapes {tuple(first.shape)} and {tuple(other.shape)} in one batch"
            )
    if len(first) % (replicas * microbatches):
        raise ValueError(
            f"a batch of {len(first)} samples does not divide into {replicas} replicas x "
            f"{microbatches} microbatches"
        )
    return [tensor.chunk(replicas)[replica] for tensor in batch]
