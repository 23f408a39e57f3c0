"""What each operation of a rank brings, number by number: for runs that are small enough to see."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .events import CommEvent
from .recorder import Recorder

MOST = 64  # elements that are kept of a tensor

Arrived = dict[int, list[list[float]]]


@contextmanager
def arrivals() -> Iterator[Arrived]:
    """Inside, on a rank that is recorded, what arrives is kept, as it was before anybody used it.

        with arrivals() as arrived:
            dist.all_gather(pieces, mine)

    The number of an operation (`CommEvent.n`) -> the tensors that it wrote, flat, the first `MOST`
    elements of each. RuntimeError where no recorder is open.
    """
    arrived: Arrived = {}

    def keep(event: CommEvent, written: list[torch.Tensor]) -> None:
        arrived[event.n] = [tensor.detach().flatten()[:MOST].tolist() for tensor in written]
        if before:
            before(event, written)

    before = Recorder.on_arrival(keep)
    try:
        yield arrived
    finally:
        Recorder.on_arrival(before)
