"""Starting more and more ranks: time, and the memory that each rank does not share."""

import statistics
import sys
from collections.abc import Iterator

import cloudpickle
import torch
import torch.distributed as dist

from course_lib.ranks import collect
from tests.bench._growth import growing, why
from tests.bench._launchers import in_fresh_process, seconds_of_forks
from tests.bench.measurement import Measurement, Row, seconds_of

_RANKS = (1, 2, 4, 8, 16, 32, 64)
_CALLS = 3


def _work() -> float:
    """MB that only this rank holds, once it has communicated."""
    import psutil  # here, as this function travels without its module

    dist.all_reduce(torch.ones(1000))
    return psutil.Process().memory_full_info().uss / 1e6


def _started() -> Iterator[tuple[str, dict[str, float]]]:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # as from a cell
    collect(_work, 2)
    for ranks in _RANKS:
        held: list[float] = []
        call = lambda n=ranks, held=held: held.extend(collect(_work, n, timeout=120))  # noqa: E731
        seconds = statistics.median(seconds_of(call) for _ in range(_CALLS))
        yield (
            f"{ranks}",
            {
                "s": seconds,
                "s of bare forks": in_fresh_process(seconds_of_forks, ranks, _CALLS),
                "MB per rank": statistics.median(held),
            },
        )


def _measure() -> list[Measurement]:
    lines = growing(_started())
    share = lines[-1].values["s of bare forks"] / lines[-1].values["s"]
    reason = (
        f"forks that meet and connect take {share:.0%} of the time of {_RANKS[-1]} ranks: each "
        f"pair of ranks has a connection, {_RANKS[-1] * (_RANKS[-1] - 1) // 2:,} in all"
    )
    return [*lines, why(reason)]


ROWS = [Row("growth-ranks", "run_ranks by ranks started", _measure)]
