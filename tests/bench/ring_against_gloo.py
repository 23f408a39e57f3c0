"""The ring all-reduce in Python, against gloo's own in C++, over the same connections."""

import itertools
from collections.abc import Callable

import torch
import torch.distributed as dist

from course_lib.ranks import collect
from course_lib.techniques.collectives import ring_all_reduce
from tests.bench.measurement import Measurement, Row, paired

_MB = (1, 4, 16, 64)
_RANKS = (2, 4)
_STARTS = 14


def _against_gloo(ours: Callable[[torch.Tensor], object], megabytes: int) -> tuple[float, ...]:
    """Runs on each rank."""
    tensor = torch.zeros(megabytes * 2**20 // 4)
    calls = max(1, 16 // megabytes)  # enough of them that ranks out of step do not matter

    def repeat(all_reduce) -> None:
        for _ in range(calls):
            all_reduce(tensor)

    return paired(lambda: repeat(ours), lambda: repeat(dist.all_reduce), pairs=3, warm_up=1)


def _messages_alone(tensor: torch.Tensor) -> None:
    """The messages of a ring in its order, each hop after the one before; nothing is added up."""
    n, rank = dist.get_world_size(), dist.get_rank()
    outgoing, arriving = tensor.view(n, -1)[:2]
    for _ in range(2 * (n - 1)):
        receiving = dist.irecv(arriving, (rank - 1) % n)
        sending = dist.isend(outgoing, (rank + 1) % n)
        receiving.wait()
        sending.wait()


def _measure() -> list[Measurement]:
    found = []
    for ranks in _RANKS:
        for megabytes in _MB:
            # As all ranks wait for each other in every call, one of them can hold the watch. Ranks
            # are started anew some times: which core the system puts whom on makes a difference.
            def ratios(what: Callable, n=ranks, mb=megabytes) -> tuple[float, ...]:
                starts = [
                    collect(_against_gloo, n, (what, mb), observe=False, timeout=300)[0]
                    for _ in range(_STARTS)
                ]
                return tuple(itertools.chain(*starts))

            what, limit = f"{megabytes} MB, {ranks} ranks", 1.25 if megabytes == 1 else 1.0
            found.append(
                Measurement(what, ratios(ring_all_reduce), limit).or_floor(
                    "only its messages, hop by hop",
                    lambda ratios=ratios: ratios(_messages_alone),
                )
            )
    return found


ROWS = [Row("ring", "ring_all_reduce against gloo's all_reduce", _measure)]
