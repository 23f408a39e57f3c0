"""The ring all-reduce in Python, against gloo's own in C++, over the same connections."""

from collections.abc import Callable

import torch
import torch.distributed as dist

from course_lib.ranks import collect
from course_lib.techniques.collectives import ring_all_reduce
from tests.bench.row import Measurement, Row, paired

_MB = (1, 4, 16, 64)
_RANKS = (2, 4)


def _against_gloo(ours: Callable[[torch.Tensor], object], megabytes: int) -> tuple[float, ...]:
    """Runs on each rank."""
    tensor = torch.zeros(megabytes * 2**20 // 4)
    calls = max(1, 32 // megabytes)  # enough of them that ranks out of step do not matter

    def repeat(all_reduce) -> None:
        for _ in range(calls):
            all_reduce(tensor)

    return paired(lambda: repeat(ours), lambda: repeat(dist.all_reduce), pairs=15, warm_up=3)


def _messages_and_additions(tensor: torch.Tensor) -> None:
    """The messages and additions of a ring, none of which waits for the one before it."""
    n, rank = dist.get_world_size(), dist.get_rank()
    chunks = tensor.view(n, -1)
    arriving = torch.empty_like(chunks[0])
    works = [dist.irecv(arriving, (rank - 1) % n) for _ in range(2 * (n - 1))]
    works += [dist.isend(chunks[rank], (rank + 1) % n) for _ in range(2 * (n - 1))]
    for work in works:
        work.wait()
    for chunk in chunks[1:]:
        chunk += arriving


def _measure() -> list[Measurement]:
    found = []
    for ranks in _RANKS:
        for megabytes in _MB:
            # As all ranks wait for each other in every call, one of them can hold the watch.
            def ratios(what: Callable, n=ranks, mb=megabytes) -> tuple[float, ...]:
                return collect(_against_gloo, n, (what, mb), observe=False, timeout=300)[0]

            what, limit = f"{megabytes} MB, {ranks} ranks", 1.25 if megabytes == 1 else 1.0
            found.append(
                Measurement(what, ratios(ring_all_reduce), limit).or_floor(
                    "messages and additions alone, unordered",
                    lambda ratios=ratios: ratios(_messages_and_additions),
                )
            )
    return found


ROWS = [Row("ring", "ring_all_reduce against gloo's all_reduce", _measure)]
