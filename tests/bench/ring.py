"""The ring all-reduce in Python, against gloo's own in C++, over the same connections."""

import torch
import torch.distributed as dist

from course_lib.ranks import collect
from course_lib.techniques.collectives import ring_all_reduce
from tests.bench.row import Measurement, Row, paired

_MB = (1, 4, 16, 64)
_RANKS = (2, 4)


def _on_each_rank(megabytes: int) -> tuple[float, ...]:
    tensor = torch.zeros(megabytes * 2**20 // 4)
    calls = max(1, 32 // megabytes)  # enough of them that ranks out of step do not matter

    def repeat(all_reduce) -> None:
        for _ in range(calls):
            all_reduce(tensor)

    return paired(
        lambda: repeat(ring_all_reduce), lambda: repeat(dist.all_reduce), pairs=15, warm_up=3
    )


def _measure() -> list[Measurement]:
    found = []
    for ranks in _RANKS:
        for megabytes in _MB:
            # As all ranks wait for each other in every call, one of them can hold the watch.
            ratios = collect(_on_each_rank, ranks, (megabytes,), observe=False, timeout=300)[0]
            limit = 1.25 if megabytes == 1 else 1.0
            found.append(Measurement(f"{megabytes} MB, {ranks} ranks", ratios, limit))
    return found


ROWS = [Row("ring", "ring_all_reduce against gloo's all_reduce", _measure)]
